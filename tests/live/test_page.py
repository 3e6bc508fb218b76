"""The page of a real swarm in a real browser: who joins and who is killed shows, time goes back, the token steers."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.live.browser import LIMIT, chromium, launched, opened, picture, qr_content, until
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
NASTY = "<img src=x onerror=alert(1)>"


def link(process: NodeProcess) -> str:
    return process.says(r"http://127\.0\.0\.1:\d+/#token=\S+")


def test_a_swarm_is_watched_scrubbed_and_steered(tmp_path: Path) -> None:
    chromium()
    founder = NodeProcess(tmp_path, "founder", "--round-seconds", "0.5", "--dashboard", "0.0.0.0:0", learns=True)
    try:
        with launched() as browser, opened(browser, link(founder), node_leaves=True) as page:
            assert "token" not in page.url
            who_joins_and_who_is_killed_shows(page, founder, tmp_path)
            time_goes_back(page)
            every_tab_knows_the_real_node(page)
            a_phone_reads_and_cannot_steer(browser, page, founder)
            pausing_pauses(page, founder)
            began = page.evaluate("p2pnode.store.pictures[0].time")
            leaving_is_done_and_said(page, founder)
            the_past_is_there_after_a_restart(browser, tmp_path, began)
    finally:
        founder.stop()


def who_joins_and_who_is_killed_shows(page, founder: NodeProcess, tmp_path: Path) -> None:
    until(page, "document.querySelectorAll('#peers tbody tr').length === 1")
    until(page, "document.getElementById('state').textContent.includes('Nobody else is here yet')")
    friend = NodeProcess(tmp_path, "friend", *pasted(founder.invite())[3:], "--name", NASTY, learns=True)
    try:
        until(page, "document.querySelectorAll('#peers tbody tr').length === 2")
        names = page.eval_on_selector_all("#peers tbody tr", "rows => rows.map(row => row.cells[0].textContent)")
        assert NASTY in names, "shown as text"
        assert page.query_selector("main img") is None
        until(page, "p2pnode.views.swarm.graph.nodes.size === 2")
        until(page, "p2pnode.views.swarm.graph.links.length === 1")
        page.click("#peers tbody tr:nth-child(2)")
        until(page, "document.getElementById('card').textContent.includes('exchanges with this node')")
        until(page, "document.getElementById('state').hidden")
        picture(page, "real-swarm")
        the_work_of_both_is_in_the_weights(page)
        friend.process.kill()
        until(page, "document.querySelectorAll('#peers tr.gone').length === 1")
        picture(page, "real-killed")
    finally:
        friend.stop()


def the_work_of_both_is_in_the_weights(page) -> None:
    until(page, "p2pnode.store.status.entries > 0")
    page.click("#tab-lineage")
    until(page, "document.querySelectorAll('#lineage-table tbody tr').length === 2")
    assert "this node" in page.text_content("#lineage-table")
    picture(page, "real-lineage")
    page.click("#tab-swarm")


def time_goes_back(page) -> None:
    page.focus("#scrub")
    page.keyboard.press("Home")
    until(page, "document.querySelectorAll('#peers tbody tr').length === 1")
    assert page.get_attribute("#live", "aria-pressed") == "false"
    page.click("#live")
    until(page, "document.getElementById('moment').textContent === 'now'")


# Choose one shard after the other: which of them were trained on, and are here, changes with the members.
SHOWS_A_JOURNEY = """(async () => {
  for (const { id } of p2pnode.views.data.shards) {
    await p2pnode.views.data.choose(id);
    if (document.getElementById("journey").textContent.includes("confidence")) return true;
  }
  return false;
})()"""


def every_tab_knows_the_real_node(page) -> None:
    page.click("#tab-learning")
    until(page, "document.getElementById('figures').textContent.includes('digits')")
    until(page, "document.querySelector('#chart-values canvas') !== null")
    picture(page, "real-learning", whole=True)
    page.click("#tab-data")
    until(page, "p2pnode.views.data.dots.dots.length > 0")
    until(page, SHOWS_A_JOURNEY)  # of a shard that this node has trained on
    picture(page, "real-data", whole=True)
    page.click("#tab-node")
    until(page, "document.getElementById('doing').textContent.includes('digits')")
    assert "python -m p2pnode join " in page.text_content("#invite")
    picture(page, "real-node", whole=True)


def a_phone_reads_and_cannot_steer(browser, page, founder: NodeProcess) -> None:
    """A page on the network warns, and its QR code leads to the page without the token."""
    address = founder.status()["page_in_network"]
    if not address:
        return  # this machine has no address in any network
    founder.says(f"everybody in this network can read the page at {address}")
    until(page, f"document.getElementById('warnings').textContent.includes('{address}')")
    scanned = qr_content(page, "#qr")
    assert scanned == address == page.text_content("#phone-link")
    with opened(browser, scanned, width=390, dark=True) as phone:
        phone.click("#tab-node")
        until(phone, "document.getElementById('doing').textContent.includes('digits')")
        assert not phone.is_visible("#steer")
    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(f"{scanned}api/pause", method="POST"))


def pausing_pauses(page, founder: NodeProcess) -> None:
    def shown() -> int:
        return int(page.evaluate("p2pnode.store.status.steps"))

    page.click("#pause")
    until(page, "document.getElementById('condition').textContent === 'paused'")
    # A step that was under way may still be counted. From then on the page, a second behind, and the node agree.
    wait_for("the steps to stand still", lambda: shown() == founder.status()["jobs"]["main"]["steps"], LIMIT)
    steps = shown()
    until(page, "document.getElementById('doing').textContent === 'Paused by you'")
    picture(page, "real-paused")
    page.click("#resume")
    until(page, f"p2pnode.store.status.steps > {steps}")
    page.fill("#max-upload", "500k")
    page.press("#max-upload", "Enter")
    until(page, "document.getElementById('upload-now').textContent.includes('500 kB/s')")


def the_past_is_there_after_a_restart(browser, tmp_path: Path, first: float) -> None:
    again = NodeProcess(tmp_path, "founder", "--dashboard", "0", learns=True)
    try:
        with opened(browser, link(again), node_leaves=True) as page:
            until(page, f"p2pnode.store.pictures[0]?.time <= {first} + 1 && p2pnode.store.status?.state.round > 0")
            page.click("#tab-learning")
            until(page, "p2pnode.views.learning.rounds[0]?.round === 1 && p2pnode.views.learning.rounds.length > 5")
            picture(page, "real-restarted", whole=True)
    finally:
        again.stop()


def leaving_is_done_and_said(page, founder: NodeProcess) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#leave")
    wait_for("the node to leave", lambda: founder.process.poll() is not None, 30.0)
    assert founder.process.returncode == 0
    until(page, "/The node left|Connection lost/.test(document.getElementById('state').textContent)")
