"""Every view of the page in a real browser, served by a node that only pretends: what it reports is what is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.fake_node import PAGE, REASONS, FakeNode, serving
from p2pnode.watch.dashboard import feed
from p2pnode.wire.status import Condition, Figure, JobState, JobStatus, JobTable, NodeEvent, NodeStatus
from tests.live.browser import chromium, launched, opened, picture, qr_content, until

pytestmark = pytest.mark.live
NASTY = ("<script>alert(1)</script>", "<img src=x onerror=alert(2)>", '"><svg onload=alert(3)>', "\u202eevil\x1b[2J")
TABS = ("swarm", "learning", "data", "lineage", "node")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    chromium()
    with launched() as found:
        yield found


@pytest.fixture(autouse=True)
def five_pictures_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for pictures."""
    monkeypatch.setattr(feed, "EVERY", 0.2)


def text(page, id: str) -> str:
    return str(page.text_content(f"#{id}"))


def counted(page, selector: str) -> int:
    return int(page.evaluate("selector => document.querySelectorAll(selector).length", selector))


def test_every_tab_is_reached_by_keyboard_and_shows_what_the_node_reports(browser) -> None:
    node = FakeNode(24, 3, shards=140)
    node.events.append(NodeEvent(node.status().events[0].time + 9, "shipped", "shard 12ab to owl-01: it lacks label 7"))
    with serving(node) as place, opened(browser, place.link) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 25")
        page.focus("#tab-swarm")
        for tab in TABS:
            until(page, f"document.getElementById('tab-{tab}').getAttribute('aria-selected') === 'true'")
            assert page.is_visible(f"#{tab}")
            assert len(page.text_content(f"#{tab} .about")) > 80, "what am I looking at?"
            CHECKS[tab](page, node)
            assert page.evaluate(NAMELESS) == []
            page.focus(f"#tab-{tab}")
            page.keyboard.press("ArrowRight")
        assert page.is_visible("#swarm"), "after the last tab comes the first"


MODES = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}


def test_every_tab_fits_in_light_and_dark_on_desktop_and_phone(browser) -> None:
    node = Mixed(30, 12, shards=140)  # more communities than there are colours
    with serving(node) as place, opened(browser, place.link) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 31")
        for mode, (width, theme) in MODES.items():
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            until(page, f"document.documentElement.dataset.theme === '{theme}'")
            for tab in ("swarm", "jobs", "learning", "data", "lineage", "node"):
                page.click(f"#tab-{tab}")
                until(page, READY[tab])
                page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                assert page.evaluate(LOOKS) == [], f"{tab}, {mode}"
                picture(page, f"{tab}-{mode}", whole=True)
            assert qr_content(page, "#qr") == PAGE, mode


DRAWN = "document.querySelectorAll('#{} .chart canvas').length === {}"
READY = {
    "swarm": DRAWN.format("swarm", 2),
    "jobs": "document.querySelectorAll('#jobs table').length === 3",
    "learning": DRAWN.format("charts", 8),
    "data": "document.querySelectorAll('#shards tbody tr').length > 0",
    "lineage": "document.querySelectorAll('#lineage-table tbody tr').length > 0",
    "node": "document.querySelector('#chart-traffic canvas') !== null",
}

LOOKS = Path(__file__).with_name("page_looks.js").read_text("utf-8")


# What is used by hand or drawn as a picture, and has nothing that a screen reader could call it by.
NAMELESS = """[...document.querySelectorAll("button, input, canvas, [role=img], [role=region], [tabindex]:not(tr)")]
  .filter((one) => !one.closest("[aria-hidden]") && !one.textContent.trim() && !one.ariaLabel && !one.labels?.length)
  .map((one) => one.outerHTML)"""


def swarm_is_drawn(page, node: FakeNode) -> None:
    graph = "p2pnode.views.swarm.graph"
    assert counted(page, "#peers tbody tr") == 25
    assert page.evaluate(f"{graph}.groups.length") == 3
    assert page.evaluate(f"{graph}.circles.map(circle => circle.length).sort().join()") == "8,8,9"
    assert page.evaluate(f"{graph}.links.some(link => link.bridge) && {graph}.links.some(link => !link.bridge)")
    until(page, f"{graph}.links.every(link => link.similarity > 0)")  # of others' edges by their fingerprints
    for words in ("community of", "circle: shares one delta set", "wider: more bytes", "bridge", "models differ"):
        assert words in text(page, "legend")
    a_click_shows_the_card(page)
    page.focus("#graph")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    until(page, "document.getElementById('card').textContent.includes('similarity')")
    page.keyboard.press("Escape")
    assert not page.is_visible("#card")


def a_click_shows_the_card(page) -> None:
    name, x, y = page.evaluate("""() => {
      const { graph } = p2pnode.views.swarm;
      graph.simulation.stop();
      graph.release();
      const node = [...graph.nodes.values()].find((one) => !one.me);
      const [box, { x, y, scale }] = [graph.canvas.getBoundingClientRect(), graph.view];
      const middle = [box.left + box.width / 2 + x, box.top + box.height / 2 + y];
      return [node.peer.name, middle[0] + scale * node.x, middle[1] + scale * node.y];
    }""")
    page.mouse.click(x, y)
    until(page, f"document.querySelector('#card h2')?.textContent === '{name}'")
    page.focus("#graph")
    page.keyboard.press("Escape")
    assert not page.is_visible("#card")


def learning_is_drawn(page, node: FakeNode) -> None:
    until(page, "document.querySelectorAll('#charts .chart canvas').length === 8")
    for words in ("fashion-mnist", "412", "61,706"):
        assert words in text(page, "figures")
    assert "bit-equal every time" in text(page, "agreement")
    assert "2,048 of 10,000" in text(page, "figures"), "how many test samples the accuracy is of"
    assert page.evaluate("p2pnode.views.learning.curves.loss.plot.scales.y.distr") == 3, "a log scale"
    labels = page.evaluate("Object.values(p2pnode.views.learning.charts).flatMap(c => c.plot.axes.map(a => a.label))")
    assert all(labels), "each axis says what it counts"
    explained(page, "#figures dt:nth-child(1)", "What is learned")


def explained(page, selector: str, words: str) -> None:
    """Pointing at a label shows what it means, and so does reaching it by keyboard."""
    page.hover(selector)
    until(
        page,
        f"!document.getElementById('tip').hidden && document.getElementById('tip').textContent.includes('{words}')",
    )
    page.focus("#learning dfn")
    until(page, "document.getElementById('tip').textContent.includes('published result')")
    page.keyboard.press("Escape")
    assert not page.is_visible("#tip")


def data_is_drawn(page, node: FakeNode) -> None:
    until(page, "p2pnode.views.data.dots.dots.length === 140")
    tiles = text(page, "data-figures")
    for state in ("active", "reserve", "retired", "quarantined"):
        assert f"{sum(shard.states.get(state, 0) for shard in node.status().shards):,}" in tiles
    assert counted(page, "#shards tbody tr") == 100
    assert counted(page, "#holders li") == len({shard.holder for shard in node.status().shards})
    page.focus("#shards tbody tr:nth-child(3)")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('journey').textContent.includes('6 visits')")
    assert counted(page, ".timeline circle") == 12
    assert "confidence 0.25 before" in text(page, "journey"), "said for who cannot see it"


def lineage_is_drawn(page, node: FakeNode) -> None:
    until(page, "document.querySelectorAll('#lineage-table tbody tr').length === 9")
    assert "conv2.weight" in text(page, "lineage-table")
    assert counted(page, "#shares i") == 9
    assert node.asked.count("blame") == 1, "worked out when it was looked at, and not before"


def node_is_drawn(page, node: FakeNode) -> None:
    assert "Training fashion-mnist" in text(page, "doing")
    reasons = set(page.eval_on_selector_all("#partners span", "spans => spans.map(span => span.textContent)"))
    assert reasons & set(REASONS)
    assert reasons <= {*REASONS, "it chose this node"}
    assert "it lacks label 7" in text(page, "decisions")
    assert "62 %" in text(page, "machine")
    until(page, "document.getElementById('contribution').textContent.includes('19.7 %')")  # of the weights
    for words in ("local steps", "own entries", "sent in all", "share of the weights"):
        assert words in text(page, "contribution")
    assert "3 faults" in text(page, "reputation")
    assert "python -m p2pnode join " in text(page, "invite")
    assert text(page, "phone-link") == PAGE
    assert counted(page, "#qr svg") == 1
    until(page, "document.querySelector('#chart-traffic canvas') !== null")


CHECKS = {
    "swarm": swarm_is_drawn,
    "learning": learning_is_drawn,
    "data": data_is_drawn,
    "lineage": lineage_is_drawn,
    "node": node_is_drawn,
}


def test_several_jobs_have_a_tab_and_choosing_one_shows_it(browser) -> None:
    node = FakeNode(6, 1, jobs=("clothes", "<b>digits</b>"))
    with serving(node) as place, opened(browser, place.address) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 7")
        page.focus("#tab-swarm")
        page.keyboard.press("ArrowRight")
        until(page, "!document.getElementById('jobs').hidden")
        cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        rows = page.eval_on_selector_all("#jobs tbody tr", cells)
        assert [row[:4] for row in rows] == [
            ["clothes", "train", "running", "fashion-mnist"], ["<b>digits</b>", "train", "running", "digits"],
        ]  # fmt: skip
        assert [row[7] for row in rows] == ["50 %", "50 %"]
        picture(page, "jobs")
        page.click("#jobs tbody tr:nth-child(2)")
        until(page, "!document.getElementById('learning').hidden")
        until(page, "document.getElementById('figures').textContent.includes('<b>digits</b>')")
        behind = "const peer = store.latest.peers[1]; return store.state(peer).round < peer.jobs.clothes.train.round"
        assert page.evaluate(f"(({{ store }}) => {{ {behind} }})(p2pnode)"), "peers are shown in the chosen job"
        until(page, "document.getElementById('run').textContent.includes('job <b>digits</b>')")
        picture(page, "second-job", whole=True)


class Mixed(FakeNode):
    """A node that also does work of a kind the page does not know."""

    def status(self) -> NodeStatus:
        status = super().status()
        figures = (Figure("mean", 20.25, "mean <b>so far</b>", "°C"), Figure("done", 0.5, unit="share"))
        table = JobTable("peers it called", (("peer", "peer"), ("times", "")), ((status.peers[0].id, 7),))
        job = JobStatus("mean", state=JobState(figures=figures), tables=(table,))
        peers = [replace(peer, jobs={**peer.jobs, "warm": job.state}) for peer in status.peers]
        return replace(status, jobs={"warm": job, **status.jobs}, peers=tuple(peers))


def test_another_kind_of_work_is_shown_by_what_it_reports(browser) -> None:
    node = Mixed(3, 1)
    with serving(node) as place, opened(browser, place.address) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 4")
        assert page.evaluate("p2pnode.store.job") == "main", "the first job that trains"
        page.click("#tab-jobs")
        tables = "tables => tables.map(one => [...one.rows].map(row => [...row.cells].map(cell => cell.textContent)))"
        mean, _, called = page.eval_on_selector_all("#jobs table", tables)
        assert mean[0] == ["job", "kind", "state", "mean <b>so far</b>", "done", "share of compute", "reason"]
        assert mean[1] == ["warm", "mean", "running", "20.25 °C", "50.0 %", "–", "–"]
        assert called == [["peer", "times"], [node.status().peers[0].name, "7"]]
        picture(page, "other-kind")
        page.click("#jobs tbody tr:nth-child(1)")
        until(page, "p2pnode.store.job === 'warm'")
        page.click("#tab-swarm")
        page.click("#peers tbody tr:nth-child(2)")
        until(page, "document.getElementById('card').textContent.includes('mean <b>so far</b>20.25 °C')")
        assert page.eval_on_selector_all("#peers th", "heads => heads.map(head => head.textContent)")[3:6] == [
            "mean <b>so far</b>", "done", "similarity",
        ], "its own figures, and none of training"  # fmt: skip
        assert not page.is_visible("#swarm-charts")
        page.click("#tab-learning")
        until(page, "document.getElementById('no-learning').textContent.includes('The job warm trains no model')")
        page.click("#tab-node")
        until(page, "document.getElementById('doing').textContent.startsWith('Working on warm (mean); training ')")


class Queued(FakeNode):
    """A node with two queues, one of which moves on after some looks."""

    looks = 0

    def status(self) -> NodeStatus:
        status = super().status()
        self.looks += 1
        moved = self.looks > 4
        rows = (("small", status.peers[int(moved)].id, int(moved)), ("<b>wide</b>", status.id, 0))
        table = JobTable("queues", (("queue", ""), ("owner", "peer"), ("term", "")), rows)
        return replace(status, jobs={"zoo": JobStatus("queues", tables=(table,)), **status.jobs})


def test_who_owned_which_queue_is_drawn_over_time(browser) -> None:
    node = Queued(3, 1)
    with serving(node) as place, opened(browser, place.address) as page:
        until(page, "!document.getElementById('tab-jobs').hidden")
        page.click("#tab-jobs")
        until(page, "document.querySelectorAll('.ownership rect').length === 3")
        fills = page.eval_on_selector_all(".ownership rect", "all => all.map(one => one.getAttribute('fill'))")
        assert len(set(fills)) == 3, "a colour for each owner: two of the first queue, one of the second"
        names = page.eval_on_selector_all(".ownership text", "all => all.map(one => one.textContent)")
        assert names == ["small", "<b>wide</b>"]
        assert "this node" in page.inner_text(".ownership .legend")
        picture(page, "queues")


class Converged(FakeNode):
    """A node that has slowed down."""

    def status(self) -> NodeStatus:
        status = super().status()
        train = replace(status.jobs["main"].training, slowed="converged: <b>no</b> change")
        return replace(status, jobs={"main": replace(status.jobs["main"], train=train)})


def test_a_node_that_has_slowed_down_says_why(browser) -> None:
    with serving(Converged(3, 1)) as place, opened(browser, place.address) as page:
        page.click("#tab-node")
        until(page, "document.getElementById('doing').textContent.startsWith('Slowed down at round')")
        assert "converged: <b>no</b> change" in text(page, "doing-reason")


class Writing(FakeNode):
    """A node that trains a language model."""

    def status(self) -> NodeStatus:
        status = super().status()
        job = status.jobs["main"]
        state = replace(job.state, figures=(Figure("bits_per_byte", 2.25, "bits per byte"),))
        written = JobTable("the model writes", (("", ""),), (("The <b>house</b>",), ("on the hill",)))
        return replace(status, jobs={"main": replace(job, state=state, tables=(written,))})


def test_a_language_model_shows_how_good_it_is_and_what_it_writes(browser) -> None:
    with serving(Writing(3, 1)) as place, opened(browser, place.address) as page:
        page.click("#tab-learning")
        until(page, "!document.getElementById('written').hidden")
        assert text(page, "written").splitlines() == ["the model writes", "The <b>house</b>", "on the hill"]
        assert "bits per byte" in text(page, "figures") and "2.25" in text(page, "figures")


def test_one_job_needs_no_tab(browser) -> None:
    with serving(FakeNode(3, 1)) as place, opened(browser, place.address) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 4")
        assert not page.is_visible("#tab-jobs")


def test_what_peers_can_set_is_text_in_every_view(browser) -> None:
    node = FakeNode(len(NASTY), 2, shards=9, names=NASTY)
    node.events += [NodeEvent(1.0, "peer joined", f"{name} is here", warning=True) for name in NASTY]
    node.reason = NASTY[0]
    with serving(node) as place, opened(browser, place.link) as page:
        until(page, f"p2pnode.views.swarm.graph.nodes.size === {len(NASTY) + 1}")
        page.click("#peers tbody tr:nth-child(2)")
        for tab in TABS:
            page.click(f"#tab-{tab}")
            until(page, f"!document.getElementById('{tab}').hidden")
        until(page, "document.getElementById('warnings').children.length === 4")
        assert NASTY[0] in text(page, "peers")
        assert counted(page, "main script, main img, svg[onload]") == 0
        assert "\x1b" not in text(page, "peers")
        assert "\u202e" not in text(page, "peers")


def test_every_state_is_said_in_plain_words_and_it_recovers_by_itself(browser) -> None:
    node = FakeNode(3, 1)
    says = "document.getElementById('state').textContent.includes('{}')"
    with ExitStack() as stack:
        with serving(node) as place:
            page = stack.enter_context(opened(browser, place.address, node_leaves=True))
            until(page, "p2pnode.views.swarm.graph.nodes.size === 4")
        until(page, says.format("Connection lost"))
        picture(page, "lost")
        with serving(node, int(place.address.rstrip("/").rpartition(":")[2])):
            until(page, "document.getElementById('state').hidden")
            for condition, reason, title in STATES:
                node.condition, node.reason = condition, reason
                until(page, says.format(title))
            picture(page, "another-version")
            node.condition, node.paused = "connected", "on battery"
            until(page, says.format("Paused: on battery"))
            until(page, "document.getElementById('condition').textContent === 'paused'")
            node.condition, node.paused = "leaving", ""
            until(page, says.format("is leaving the run"))
        until(page, says.format("The node left"))


STATES: tuple[tuple[Condition, str, str], ...] = (
    ("alone", "nobody else is here yet", "Nobody else is here yet"),
    ("network down", "the network daemon is being replaced", "The network is down"),
    ("searching", "no peer answers (1.2.3.4: timeout); still trying", "No peer answers"),
    ("searching", "no peer answers (no member of run abc found yet); still trying", "The run was not found yet"),
    ("searching", "no peer answers (1.2.3.4: you speak protocol 1, this node 2); still trying", "Another version"),
)


FLOOD = """async ([count, scrubbed]) => {
  const { store } = p2pnode, first = store.latest;
  for (let at = 1; at <= count; at++) {
    await store.add({ ...first, time: first.time + at });
    if (at === scrubbed) store.scrub(store.pictures.length - 2);
  }
  const times = store.pictures.map((picture) => picture.time - first.time);
  const ordered = times.every((time, at) => !at || time > times[at - 1]);
  return { kept: times.length, latest: times.at(-1), shown: store.shown.time - first.time, ordered };
}"""


def test_a_page_left_open_keeps_a_bounded_past_and_the_moment_that_is_shown(browser) -> None:
    with serving(FakeNode(3, 1)) as place, opened(browser, place.address) as page:
        until(page, "p2pnode.views.swarm.graph.nodes.size === 4")
        found = page.evaluate(FLOOD, [3000, 500])
        assert found["kept"] <= 900
        assert (found["latest"], found["shown"], found["ordered"]) == (3000, 499, True)
        page.click("#live")
        page.click("#play")
        until(page, "document.getElementById('moment').textContent !== 'now'")
        assert page.get_attribute("#play", "aria-label") == "Stop"


def test_only_the_token_steers(browser) -> None:
    node = FakeNode(3, 1)
    with serving(node) as place:
        with opened(browser, place.address) as page:
            page.click("#tab-node")
            assert not page.is_visible("#steer")
            assert "token" in text(page, "steer-hint")
        with opened(browser, place.link, node_leaves=True) as page:
            assert "token" not in page.url
            page.click("#tab-node")
            page.click("#pause")
            until(page, "document.getElementById('doing').textContent.startsWith('Paused')")
            assert not page.is_visible("#pause")
            page.click("#resume")
            until(page, "document.getElementById('doing').textContent.startsWith('Training')")
            page.once("dialog", lambda dialog: dialog.dismiss())
            page.click("#leave")
            assert not node.left
            page.once("dialog", lambda dialog: dialog.accept())
            page.click("#leave")
            until(page, "document.getElementById('steer-said').textContent === 'leaving'")
            assert node.left
