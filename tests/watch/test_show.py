"""Which view is chosen, and that the log ends up in it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from typing import Any

import pytest

from p2pnode.config.options import OutputOptions
from p2pnode.storage.checked import read_or_set_aside
from p2pnode.storage.files import MemoryStorage
from p2pnode.watch.history import history_file, unpack_history
from p2pnode.watch.show import page_shown, shown, view_kind
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.status import NodeEvent, NodeStatus, Traffic


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class FakeNode:
    """A node that has an invite and reports the events a test gives it."""

    def __init__(self, role: str = "node", private: bool = False) -> None:
        self.say: Callable[[NodeEvent], None] = lambda event: None
        self.role = role
        self.private = private

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None:
        self.say = listener

    def leave(self) -> None: ...

    async def look_around(self) -> None: ...

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        raise AssertionError("nobody steers this node")

    def status(self) -> NodeStatus:
        return NodeStatus(
            id="me", name="otter", run="r", role=self.role, condition="alone", reason="", private=self.private,
            uptime_seconds=1.0,
            clock_offset_seconds=0.0, addresses=("/ip4/1.2.3.4/tcp/5",), invite="python -m p2pnode --run r",
            daemon_starts=1, traffic=Traffic(), peers=(), events=(),
        )  # fmt: skip


async def until_shown(stream: Stream, text: str) -> None:
    async with asyncio.timeout(30.0):
        while text not in stream.getvalue():  # noqa: ASYNC110 (a stream sends no event)
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _usual_logging(monkeypatch):
    """What a view does to the log is undone, and the test's terminal is a usual one."""
    monkeypatch.setenv("TERM", "xterm")
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers[:] = before
    logging.captureWarnings(False)


@pytest.mark.parametrize(
    ("log_format", "terminal", "quiet", "kind"),
    [
        ("auto", True, False, "live"),
        ("rich", True, False, "live"),
        ("auto", False, False, "plain"),
        ("rich", False, False, "plain"),
        ("auto", True, True, "plain"),
        ("plain", True, False, "plain"),
        ("json", True, False, "json"),
        ("json", False, True, "json"),
    ],
)
def test_the_view_fits_the_place(log_format, terminal, quiet, kind):
    assert view_kind(OutputOptions(log_format, quiet), Stream(terminal)) == kind


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert view_kind(OutputOptions(), Stream(True)) == "plain"


async def test_lines_have_events_invite_and_log():
    stream, node = Stream(False), FakeNode()
    async with shown(node, OutputOptions(), stream):
        await until_shown(stream, "--run r")
        node.say(NodeEvent(0.0, "joined", "fox is here"))
        logging.getLogger("hivemind.x").warning("something\nodd")
        logging.getLogger("p2pnode.x").info("not worth a line")
    lines = stream.getvalue().splitlines()
    assert lines[1] == "python -m p2pnode --run r"
    assert lines[2].endswith("fox is here")
    assert lines[3].endswith("warning: hivemind.x: something odd")
    assert len(lines) == 4


async def test_a_meeting_point_says_its_address():
    stream = Stream(False)
    async with shown(FakeNode("bootstrap"), OutputOptions(), stream):
        await until_shown(stream, "/tcp/5")
    assert stream.getvalue().splitlines()[1] == "/ip4/1.2.3.4/tcp/5"


async def test_the_live_view_is_drawn_and_says_goodbye():
    stream = Stream(True)
    async with shown(FakeNode(), OutputOptions(), stream):
        await until_shown(stream, "otter")
        logging.getLogger("hivemind.x").warning("something odd")
    assert "otter" in stream.getvalue()
    assert "something odd" in stream.getvalue()
    assert "left after 1 s" in stream.getvalue()


async def test_the_history_is_kept_without_a_page_too():
    storage = MemoryStorage()
    node: Any = FakeNode()
    async with asyncio.timeout(60):
        while storage.read(history_file("r")) is None:  # what was kept is read in a thread before it is written
            async with page_shown(node, None, storage):
                await asyncio.sleep(0.05)
    kept = read_or_set_aside(storage, history_file("r"), unpack_history, "")
    assert kept is not None and kept.pictures[-1].peers[0].name == "otter"


@pytest.mark.parametrize(
    ("log_format", "terminal", "shows"), [("json", True, False), ("plain", False, False), ("plain", True, True)]
)
async def test_the_key_of_a_private_run_goes_to_a_terminal_and_into_no_log(log_format, terminal, shows):
    stream, node = Stream(terminal), FakeNode(private=True)
    async with shown(node, OutputOptions(log_format), stream):
        await until_shown(stream, "--run r" if shows else "python -m p2pnode status")
    assert ("--run r" in stream.getvalue()) == shows
