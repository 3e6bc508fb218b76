"""The first try, with real processes on one machine: the invite can be copied, and a second node gets its own place."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pnode.wire.ids import Identity
from p2pnode.wire.invite import decode_invite
from tests.live.cli_nodes import PATIENCE, NodeProcess, pasted, wait_for
from tests.live.terminal_screen import TerminalScreen

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("cli")]
Opener = Callable[..., NodeProcess]


class HomeProcess(NodeProcess):
    """A node without --data-dir, in a home that it shares with others."""

    def environment(self) -> dict[str, str]:
        usual = {key: value for key, value in super().environment().items() if key != "P2PNODE_DATA_DIR"}
        return {**usual, "XDG_DATA_HOME": str(self.data_dir.parent / "home")}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Opener]:
    opened: list[NodeProcess] = []

    def launch(kind: type[NodeProcess], name: str, *arguments: str, terminal: int | None = None) -> NodeProcess:
        opened.append(kind(tmp_path, name, *arguments, terminal=terminal))
        return opened[-1]

    yield launch
    for one in opened:
        one.stop()


def test_the_invite_is_copied_whole_from_a_terminal(process: Opener) -> None:
    """It is written once, without anything between its characters, and stays on a small screen above the live view."""
    width, height = 60, 20
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    ann = process(NodeProcess, "ann", "--private", "--name", "ann", "--dashboard", "0", terminal=terminal)
    os.close(terminal)
    shown, decoder = "", codecs.getincrementaldecoder("utf-8")()

    def read_on() -> str:
        nonlocal shown
        if select.select([screen], [], [], 0.5)[0]:
            shown += decoder.decode(os.read(screen, 1 << 16))
        return shown

    wait_for("the invite", lambda: "p2pnode join" in read_on(), 60)
    frames = shown.count("nobody else yet")
    wait_for("some more pictures", lambda: read_on().count("nobody else yet") > frames + 4, 60)
    picture = TerminalScreen(width, height)
    picture.feed(shown[: shown.rindex("\r\x1b[2K")])  # up to where the last picture is wiped out for the next
    command = ann.status()["invite"]
    assert decode_invite(command).access.private
    assert shown.count("python -m p2pnode join") == shown.count(f"\n{command}\r\n") == 1
    assert picture.lines().count(command) == 1
    assert any("nobody else yet" in line for line in picture.lines())
    os.write(screen, b"\x03")
    deadline = time.monotonic() + PATIENCE * 10
    while ann.process.poll() is None and time.monotonic() < deadline:
        try:
            read_on()
        except OSError:
            break  # the other side has closed it
    assert ann.ended(10) == 0


def test_nodes_on_one_machine_get_data_directories_of_their_own(process: Opener, tmp_path: Path) -> None:
    usual = tmp_path / "home" / "p2pnode"
    second_place = tmp_path / "home" / "p2pnode-2"
    ann = process(HomeProcess, "ann", "--name", "ann")
    bob = process(HomeProcess, "bob", *pasted(ann.invite())[3:], "--name", "bob")
    bob.says(f"another node uses {usual}, so this one uses {second_place}; commands about it need --data-dir")
    bob.says("joined run")
    ann.says(r"bob \(\w+\) is here")
    identity = (second_place / "identity.key").read_bytes()
    assert identity != (usual / "identity.key").read_bytes()
    bob.signalled(signal.SIGKILL)
    again = process(HomeProcess, "bob2")
    again.says(f"so this one uses {second_place}")
    again.says("resumed run")
    again.says(rf"bob is {Identity.from_key_file(identity).peer_id}")  # a name lasts
    ann.signalled(signal.SIGTERM)
    third = process(HomeProcess, "third")
    third.says("resumed run")
    assert "another node uses" not in third.out
    assert (second_place / "identity.key").read_bytes() == identity
    assert sorted(path.name for path in usual.parent.iterdir()) == ["p2pnode", "p2pnode-2"]


def test_two_nodes_started_at_once_do_not_collide(process: Opener, tmp_path: Path) -> None:
    both = [process(HomeProcess, name, "--name", name) for name in ("ann", "bob")]
    for one in both:
        one.invite()
    assert sum("another node uses" in one.out for one in both) == 1


def test_a_data_directory_that_was_named_is_not_replaced(process: Opener, tmp_path: Path) -> None:
    here = ("--data-dir", str(tmp_path / "mine"))
    ann = process(HomeProcess, "ann", *here)
    ann.invite()
    second = process(HomeProcess, "bob", *here)
    assert second.ended() == 1
    assert "another node (process" in second.err
