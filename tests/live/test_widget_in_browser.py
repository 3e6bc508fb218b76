"""The notebook's widget in a real browser: it draws, tells of a peer, is dragged and scrubbed, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.notebook.widget import LATEST, SwarmWidget
from p2pnode.wire.status import ExchangeRow, JobState, PeerState, TrainState
from tests.live.browser import chromium, launched, opened, picture, until

pytestmark = pytest.mark.live
NASTY = "<img src=x onerror=alert(1)>"

# What a notebook does with a widget: its code becomes a module, its traits a model.
NOTEBOOK = """<!doctype html><meta charset="utf-8"><div id="cell"></div><script type="module">
const { code, state } = %s;
const listeners = [];
window.model = {
  state,
  get: (name) => state[name],
  set: (name, value) => window.model.put(name, value),
  save_changes() {},
  on: (event, act) => listeners.push([event, act]),
  off() {},
  put(name, value) {
    state[name] = value;
    for (const [event, act] of listeners) if (event === `change:${name}`) act();
  },
};
const source = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
const { default: widget } = await import(source);
window.end = await widget.render({ model: window.model, el: document.getElementById("cell") });
window.drawn = true;
</script>"""


def moment(number: int) -> PeerGraph:
    peers = tuple(
        PeerState(
            f"peer{at}",
            NASTY if at == 0 else f"n{at}",
            "node",
            at != 5,
            jobs={"main": JobState(f"circle {at % 3}", train=TrainState(number, 0.5))},
        )
        for at in range(6 + 6 * number)
    )
    edges = tuple(ExchangeRow(f"peer{at}", f"peer{at + 3}", 0.0, 1, 9000, 100) for at in range(3 + 6 * number))
    return PeerGraph(10.0 * number, "", "run", "connected", "", peers, edges)


def test_the_widget_draws_tells_and_goes_back_in_time(tmp_path: Path) -> None:
    chromium()
    widget = SwarmWidget(lambda: [moment(number) for number in range(4)])
    state = {"picture": widget.picture, "moments": widget.moments, "at": widget.at, "labels": widget.labels}
    words = json.dumps({"code": widget._esm, "state": state}).replace("<", "\\u003c")
    (tmp_path / "notebook.html").write_text(NOTEBOOK % words, "utf-8")
    with launched() as browser, opened(browser, f"file://{tmp_path}/notebook.html", width=900) as page:
        until(page, "window.drawn === true")
        assert page.inner_text(".legend b") == "23 nodes"
        coloured = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"
        until(page, f"{coloured}(document.querySelector('canvas'))")
        page.focus("canvas")
        page.keyboard.press("ArrowRight")
        until(page, f"document.querySelector('dl').textContent.includes({json.dumps(NASTY)})")
        assert page.query_selector("#cell img") is None
        assert "training loss" in page.text_content("dl")
        picture(page, "widget")
        page.focus("input[type=range]")
        page.keyboard.press("Home")
        until(page, "model.state.at === 0")
        widget.at = 0
        page.evaluate("picture => model.put('picture', picture)", widget.picture)
        assert page.inner_text(".legend b") == "5 nodes"
        assert page.inner_text(".moment") == "0 s"
        assert page.get_attribute("button", "aria-pressed") == "false"
        page.click("button")
        until(page, f"model.state.at === {LATEST}")
        page.evaluate("end()")
