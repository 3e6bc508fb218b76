"""The views: everything is there, it fits, and nothing a peer wrote steers the terminal."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console
from rich.live import Live

from p2pnode.cli.reports import status_lines
from p2pnode.watch.terminal.lines import json_line, line_writer, plain_line
from p2pnode.watch.terminal.live import COLOURS, TerminalCurves, TerminalView, farewell, render
from p2pnode.watch.text import ago, clean, duration, group_names, size, sparkline
from p2pnode.wire.status import (
    ExchangeRow,
    Figure,
    JobState,
    JobStatus,
    LimitOptions,
    Machine,
    NodeEvent,
    NodeStatus,
    PeerState,
    ShardRow,
    Traffic,
    TrainState,
    TrainStatus,
)
from tests.live.terminal_screen import TerminalScreen

ID = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
INVITE = f"python -m p2pnode join {'5' * 120}"
HOSTILE = [
    "\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x9b31mred",
    "[bold red]markup[/bold red]",
    "[/]",
    "[link=http://evil.example]click[/link]",
    "line\nbreak\r\nand\ttab",
    "\u202eright to left\u2066",
    "a" + "\u0301" * 500,
    "\u2028\u2029\x00\x7f",
    "x" * 10_000,
    ":warning:",
]


def row(name: str = "fox", job: dict[str, Any] | None = None, **changes) -> PeerState:
    """A peer, with changes of it and the state of its job."""
    peer = PeerState(ID, name, "node", present=True, heard_seconds_ago=2.0, latency_ms=12.0)
    circle = (job or {}).pop("circle", "")
    return replace(
        peer, jobs={"main": JobState(circle, train=TrainState(**job or {}))} if job or circle else {}, **changes
    )


def status(**changes) -> NodeStatus:
    usual = NodeStatus(
        id=ID, name="quiet-otter-07", run="abcdefghijklmnopqrstuvwxyz", role="node", condition="connected",
        reason="2 peers", private=False, uptime_seconds=75.0, clock_offset_seconds=0.0, addresses=(),
        invite=INVITE, daemon_starts=1,
        traffic=Traffic(1_234, 5_678_901, 11, 12, 13), peers=(row(),),
        events=(NodeEvent(0.0, "joined", "fox is here"),),
    )  # fmt: skip
    return replace(usual, **changes)


TRAIN = TrainState(round=12, loss=0.0213, accuracy=0.958, update_norm=0.0051)
DETAILS = TrainStatus(
    task="digits", parameters=9610, samples=240, test_loss=0.15, exchanges=45, entries=64,
    merged="3 entries of others",
)  # fmt: skip
TRAINING = JobStatus("train", state=JobState(steps_per_second=412.0, train=TRAIN), steps=3400, train=DETAILS)


def training(circle: str = "", **changes) -> dict[str, JobStatus]:
    """The jobs of a status: one, with changes of its state."""
    return {"main": replace(TRAINING, state=replace(TRAINING.state, circle=circle, train=replace(TRAIN, **changes)))}


LIMITS = LimitOptions(5e5, None, 0.5)
MACHINE = Machine(0.9, 0.2, 300_000_000, 2_000_000_000, battery=0.7, on_battery=True)
EXCHANGES = (ExchangeRow(ID, "other", 1.0, 9, 9, 9), ExchangeRow(ID, ID, 2.0, 3, 1000, 2000))
SHARDS = (ShardRow("a", 1, 1, ID), ShardRow("b", 1, 1, ID, received=True), ShardRow("c", 1, 1, "other", here=False))


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def drawn(shown: NodeStatus, width: int = 110, height: int = 40, curves: str = "") -> str:
    console = Console(file=io.StringIO(), force_terminal=False, width=width, height=height, no_color=True)
    console.print(render(shown, width, height, curves))
    return text_of(console)


def test_learning_is_shown():
    text = drawn(status(jobs=training()), width=190)
    words = [
        "digits, round 12", "test accuracy 95.8%", "training loss 0.0213", "412/s on 240 samples", "update norm 0.51%",
        "64 entries of others",
    ]  # fmt: skip
    assert [word for word in words if word not in text] == []
    assert "accuracy 95.8%" in farewell(status(jobs=training()))
    few = replace(TRAINING, train=replace(DETAILS, test_samples=64, test_available=360))
    assert "test accuracy 95.8% (of 64 of 360 test samples)" in drawn(status(jobs={"main": few}), width=190)
    assert "test loss 0.15" in drawn(status(jobs=training(accuracy=None, loss=None)))


def test_a_language_model_shows_how_good_it_is_and_what_it_writes():
    state = replace(TRAINING.state, figures=(Figure("perplexity", 21.5, "perplexity"),))
    said = NodeEvent(0.0, "sample", "the model writes: The house on the hill")
    text = drawn(status(jobs={"main": replace(TRAINING, state=state)}, events=(said,)), width=190)
    assert "perplexity 21.5" in text and "The house on the hill" in text


def test_another_kind_of_work_is_shown_by_its_figures():
    figures = (
        Figure("mean", 0.25, "shared mean", "share"), Figure("stored", 12_000, unit="bytes"), Figure("none", None),
        Figure("waited", 90.0, unit="s"), Figure("owner", ID, unit="peer"), Figure("calls", 3),
        Figure("hz", 1.5, unit="Hz"),
    )  # fmt: skip
    job = JobStatus("consensus", state=JobState(figures=figures))
    text = drawn(status(jobs={"main": job}), width=200)
    assert "consensus  ·  shared mean 25.0%  ·  stored 12.0 kB  ·  none –  ·  waited 1 min 30 s" in text
    assert f"owner {ID[-8:]}  ·  calls 3  ·  hz 1.5 Hz" in text
    ended = replace(job, condition="ended", reason="the disk is full")
    assert "learning: ended: the disk is full, shared mean 25.0%" in "\n".join(
        status_lines(status(jobs={"main": ended}))
    )
    assert "small: digits" in drawn(status(jobs={"other": job, "small": TRAINING}))


def test_the_shards_here_are_counted_among_all_that_the_data_set_has():
    dealt = replace(TRAINING, train=replace(DETAILS, shards_in_all=14))
    assert "2 of all 14 shards here" in drawn(status(jobs={"main": dealt}, shards=SHARDS), width=160)


def test_a_community_has_the_name_of_its_first_member_and_says_whether_it_is_ours():
    fox, owl, hare = (replace(row(name, community="fox's id"), id=f"{name}'s id") for name in ("fox", "owl", "hare"))
    hare = replace(hare, community=ID)
    ours = {"main": replace(TRAINING, community=ID)}
    assert group_names(status(peers=(fox, owl, hare), jobs=ours)) == {
        "fox's id": "of fox", ID: "of quiet-otter-07 (yours)",
    }  # fmt: skip


@pytest.mark.parametrize("unit", ["", "share", "bytes", "s", "°C"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_figure_that_is_no_number_breaks_no_view(value: float | None, unit: str):
    odd = JobStatus("odd", state=JobState(figures=(Figure("odd", value, unit=unit),)))
    assert "odd –" in drawn(status(jobs={"odd": odd}), width=160)


def test_a_circle_that_formed_by_itself_is_called_after_its_first_member():
    grown, other = "8afdf127df92709f27b3b62d9071b35d8c0466bf", "11ea22c72ba80980b1d1cc8bd5c8a9c7d1b9f0aa"
    fox, owl = (replace(row(name, {"circle": grown}), id=f"{name}'s id") for name in ("fox", "owl"))
    hare = replace(row("hare", {"circle": other}), id="1")
    ours = {"main": replace(TRAINING, state=replace(TRAINING.state, circle=grown))}
    shown = status(peers=(owl, fox, hare, row("newt", {"circle": "genesis"})), jobs=ours)
    called = group_names(shown)
    assert (called[grown], called[other], called["genesis"]) == ("of quiet-otter-07 (yours)", "of hare", "genesis")
    assert "of hare" in drawn(shown, width=200)


def test_a_node_that_has_slowed_down_says_why():
    slowed = replace(TRAINING, train=replace(DETAILS, slowed="converged: nothing changes; rests 38 s after a round"))
    for text in (
        drawn(status(jobs={"main": slowed}), width=200),
        "\n".join(status_lines(status(jobs={"main": slowed}))),
    ):
        assert "converged: nothing changes; rests 38 s after a round" in text


def test_several_jobs_have_a_line_each_with_their_names():
    jobs = {"small": TRAINING, "wide": replace(TRAINING, train=replace(DETAILS, task="text"))}
    text = drawn(status(jobs=jobs), width=160)
    assert "small: digits, round 12" in text and "wide: text, round 12" in text
    assert "learning: small: digits" in "\n".join(status_lines(status(jobs=jobs)))
    assert drawn(status(jobs=jobs), 80, 24).count("\n") <= 24


def test_what_peers_say_of_their_rounds_is_shown_once_anyone_says_something():
    assert "update norm" not in drawn(status())
    said = row("owl", {"round": 7, "loss": 0.4321, "update_norm": 0.0123})
    text = drawn(status(peers=(row(), said)), width=140)
    assert [word for word in ("round", "7", "0.432", "1.23%", "–") if word not in text] == []


def test_circles_are_shown_once_there_are_several():
    assert "circle" not in drawn(status(jobs=training()), width=160)
    other = row("owl", {"circle": "ab12cd34" * 5})
    text = drawn(status(jobs=training(circle="98fe76dc" * 5), peers=(row(), other)), width=180)
    words = ("circle 98fe76dc", "of owl", "genesis")
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("height", [24, 30, 40])
def test_learning_fits_too(height):
    many = tuple(row(f"fox {number}") for number in range(100))
    full = status(
        jobs=training(), peers=many, machine=MACHINE, paused="on battery", limits=LIMITS, exchanges=EXCHANGES,
        shards=SHARDS, unwell=("no local step for 200 s",),
    )  # fmt: skip
    assert drawn(full, 80, height, "loss ▁█ 0.1").count("\n") <= height


def test_a_rest_its_reason_the_load_the_limits_the_partner_and_the_shards_are_shown():
    chosen = row(reason="most similar, not met for 5 rounds")
    full = status(
        peers=(chosen,), machine=MACHINE, paused="on battery", limits=LIMITS, exchanges=EXCHANGES, shards=SHARDS
    )
    words = [
        "paused: on battery", "machine 90% busy, this node 20%", "battery 70%", "upload 500 kB/s", "cpu 50%",
        "partner fox (most similar, not met for 5 rounds), ↑ 1.0 kB ↓ 2.0 kB in 3",
        "2 shards here, 1 received",
    ]  # fmt: skip
    text = drawn(full, 160)
    assert [word for word in words if word not in text] == []
    assert "paused" not in drawn(status(machine=MACHINE))
    assert "limits" not in drawn(status(machine=MACHINE), 160)
    assert "no local step for 200 s" in drawn(status(unwell=("no local step for 200 s",)))


def test_curves_take_down_each_round_once_and_an_observer_sees_the_mean_of_its_peers():
    own, others = TerminalCurves(), TerminalCurves()
    for number in range(40):
        own.note(status(jobs=training(round=number // 2, loss=1.0 - number / 100, accuracy=number / 100)))
        fox: dict[str, Any] = {"round": number, "loss": 2.0}
        owl: dict[str, Any] = {"round": number, "loss": 1.0 - number / 100}
        peers = (row(job=fox), row("owl", owl), row("late"))
        others.note(status(peers=peers))
    assert own.bars(90).count("training loss") == 1
    bars = own.bars(90).split()[2]
    assert len(bars) == 20 and bars[0] == "█" and bars[-1] == "▁"
    assert "accuracy ▁" in own.bars(90)
    assert others.bars(90).endswith("1.3") and "accuracy" not in others.bars(90)
    assert TerminalCurves().bars(90) == ""


@given(st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=60), st.integers(1, 40))
def test_a_sparkline_fits_and_has_both_ends(values, width):
    bars = sparkline(values, width)
    assert len(bars) <= width
    if len(set(bars)) > 1:
        assert {"▁", "█"} <= set(bars)


def test_everything_is_shown():
    text = drawn(status())
    words = [
        "quiet-otter-07", "connected", "2 peers", "abcdefghijklmnopqrstuvwxyz", ID, "1 min 15 s", "fox", "eQAJU5SA",
        "12 ms", "2 s ago", "1.2 kB", "5.7 MB", "11 calls made", "12 served", "13 refused", "fox is here",
    ]  # fmt: skip
    for word in words:
        assert word in text


@pytest.mark.parametrize("condition", list(COLOURS))
def test_every_condition_is_named_with_its_reason(condition):
    text = drawn(status(condition=condition, reason="because", peers=(), invite="", run=""))
    assert condition in text
    assert "because" in text
    assert "nobody else yet" in text


def test_what_needs_attention_is_said():
    text = drawn(status(private=True, daemon_starts=3, clock_offset_seconds=-86400.0, role="observer"))
    assert "private" in text
    assert "daemon started 3 times" in text
    assert "clock +86400 s" in text
    assert "observer" in text


def test_a_meeting_point_has_no_run():
    assert "a meeting point for any run" in drawn(status(role="bootstrap", run="", invite=""))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 40), (200, 60), (60, 30), (80, 21), (60, 16)])
@pytest.mark.parametrize("count", [0, 1, 7, 2000])
def test_it_fits_the_screen(width, height, count):
    peers = tuple(row(f"peer {number}", present=number % 3 > 0) for number in range(count))
    events = tuple(NodeEvent(0.0, "x", f"event {number} " + "long " * 50) for number in range(20))
    lines = drawn(status(peers=peers, events=events), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any("event 19" in line for line in lines)
    assert (count < 2000) or any("+19" in line for line in lines)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_harmless_everywhere(hostile):
    shown = status(
        name=hostile, reason=hostile, role=hostile, peers=(row(hostile, role=hostile, id=hostile),),
        events=(NodeEvent(0.0, "x", f"{hostile} is here"), NodeEvent(1.0, "y", "after")),
    )  # fmt: skip
    plain = drawn(
        status(
            name="a",
            reason="a",
            role="a",
            peers=(row("a"),),
            events=(NodeEvent(0.0, "x", "a"), NodeEvent(1.0, "y", "after")),
        )
    )
    text = drawn(shown)
    assert not any(char in text for char in "\x1b\x9b\x07\x00\r\t\x7f\u202e\u2066\u2028\u2029")
    assert len(text.splitlines()) == len(plain.splitlines())
    if hostile.startswith("[bold"):
        assert "[bold red]markup[/bold red]" in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_lines_stay_one_line(hostile):
    event = NodeEvent(0.0, "joined", hostile, warning=True)
    line = plain_line(event)
    assert line.isprintable()
    assert len(line) < 700
    parsed = json_line(event)
    assert parsed.isascii()
    assert json.loads(parsed) == {"time": 0.0, "kind": "joined", "text": hostile, "warning": True}
    assert not any(ord(char) < 32 for char in parsed)


def test_quiet_shows_warnings_only():
    stream = io.StringIO()
    write = line_writer(stream, "plain", quiet=True)
    write(NodeEvent(0.0, "a", "usual"))
    write(NodeEvent(0.0, "b", "strange", warning=True))
    assert "usual" not in stream.getvalue()
    assert "warning: strange" in stream.getvalue()


def test_a_reader_that_went_away_does_not_stop_the_node():
    stream = io.StringIO()
    write = line_writer(stream, "json", quiet=False)
    stream.close()
    write(NodeEvent(0.0, "a", "b"))
    write(NodeEvent(0.0, "a", "b"))


class Screens:
    """A live view on a screen of some size, whose node's status a test sets."""

    def __init__(self, width: int, height: int, **shown: Any) -> None:
        self.console = Console(
            file=io.StringIO(), force_terminal=True, width=width, height=height, no_color=True, legacy_windows=False
        )
        self.status = status(**shown)
        self.view = TerminalView(lambda: self.status, self.console)
        self.screen = TerminalScreen(width, height)
        self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def draw(self, **changes: Any) -> list[str]:
        """The lines on the screen after some more pictures."""
        self.status = replace(self.status, **changes)
        for _ in range(3):
            self.view.draw(self._live)
        self.screen.feed(text_of(self.console).replace("\n", "\r\n"))  # as a terminal driver does
        self.console.file = io.StringIO()
        return self.screen.lines()


CROWD = {
    "peers": tuple(row(f"fox {number}") for number in range(30)),
    "events": tuple(NodeEvent(float(number), "joined", f"event {number}") for number in range(50)),
    "page": "http://127.0.0.1:8080/?token=123456",
    "unwell": ("no local step for 200 s",),
    "machine": MACHINE, "exchanges": EXCHANGES, "shards": SHARDS,
}  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (120, 50)])
def test_the_invite_stays_on_the_screen_whole_and_once(width: int, height: int) -> None:
    screens = Screens(width, height, invite="")
    assert INVITE not in screens.draw()
    for changes in ({"invite": INVITE}, {"jobs": training()}, CROWD):
        assert screens.draw(**changes).count(INVITE) == 1
    for number in range(30):
        screens.view.log(NodeEvent(100.0 + number, "log", f"a library complains {number}", warning=True))
        assert screens.draw().count(INVITE) == 1
    assert "a library complains 29" in "\n".join(screens.draw())


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20)])
def test_a_new_invite_takes_the_place_of_the_old_one(width: int, height: int) -> None:
    screens, newer = Screens(width, height), INVITE.replace("5", "6")
    assert screens.draw(**CROWD).count(INVITE) == 1
    lines = screens.draw(invite=newer)
    assert lines.count(newer) == 1 and INVITE not in lines
    assert sum("quiet-otter-07" in line for line in lines) == 1, "one picture"


def test_the_invite_is_printed_once() -> None:
    screens = Screens(80, 24)
    written = ""
    for _ in range(5):
        screens.view.draw(screens._live)
        written = text_of(screens.console)
    assert written.count(INVITE) == written.count(INVITE + "\n") == 1


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    console.print(render(status(), 100, 40))
    assert "\x1b[3" not in text_of(console)


def test_words_for_amounts():
    assert [size(count) for count in (0, 999, 1000, 123_456, 5_678_901, 2 * 10**12)] == [
        "0 B", "999 B", "1.0 kB", "123 kB", "5.7 MB", "2.0 TB",
    ]  # fmt: skip
    assert [duration(value) for value in (-1, 5, 65, 3700, 90_000)] == [
        "0 s",
        "5 s",
        "1 min 05 s",
        "1 h 01 min",
        "1 d 01 h",
    ]
    assert ago(None) == "never"
    assert clean("plain ünïcode 漢字") == "plain ünïcode 漢字"
    assert "left after 1 min 15 s" in farewell(status())


@pytest.mark.parametrize(("aim", "words"), [("own", "a model for each community"), ("shared", "one model for all")])
def test_the_status_says_what_the_run_is_for(aim, words):
    assert f"aim: {words}" in status_lines(status(jobs={"main": replace(TRAINING, train=replace(DETAILS, aim=aim))}))
    assert "aim: none" in status_lines(status())
