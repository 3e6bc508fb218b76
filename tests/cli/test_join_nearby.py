"""`join` without a code: what it lists, what it asks, and what it says where nobody can answer or nobody is there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from p2pnode.cli import app, run
from p2pnode.cli import lan as cli_lan
from p2pnode.discovery.lan import Advert
from p2pnode.node import lan as node_lan
from p2pnode.node.lan import visible_nearby
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity
from p2pnode.wire.invite import Invite, invite_command
from p2pnode.wire.run import RunAccess
from p2pnode.wire.status import NodeEvent

PEER = Identity(b"\1" * 32).peer_id
ACCESS = RunAccess.parse("abcdefghijklmnopqrstuvwxya")
INVITE = Invite(ACCESS, (parse_address(f"/ip4/192.168.1.5/tcp/31337/p2p/{PEER}"),))
OTTER = Advert("a", "run of otter", "digits", 3, INVITE)
OTHER = Invite(RunAccess.parse("abcdefghijklmnopqrstuvwxye"), INVITE.addresses)
BAT = Advert("b", "run of \x1b[31mbat", "text", 1, OTHER)
HIDDEN = Advert("0123456789abcdef")
Looker = Callable[..., tuple[int, str, str]]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Looker:
    """Runs `join` in a network where these runs are, with a user who gives these answers, or with none."""
    started: list[Any] = []

    def note(options: Any, *rest: object) -> None:
        started.append(options)

    def join(runs: Sequence[Advert], answer: str | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(cli_lan, "look_around", lambda: list(runs))
        monkeypatch.setattr("p2pnode.cli.start.run_and_exit", note)
        monkeypatch.setattr("sys.stdin.isatty", lambda: answer is not None, raising=False)
        monkeypatch.setattr("sys.stdout.isatty", lambda: answer is not None, raising=False)
        monkeypatch.setattr("typer.confirm", lambda question: print(question) or answer == "y")
        monkeypatch.setattr("typer.prompt", lambda question, **rest: print(question) or answer)
        code = run(app, ["join"], "p2pnode")
        out, err = capsys.readouterr()
        assert err.count("\n") <= 1
        return code, out, err + "".join(f"joins {options.run.invite}" for options in started)

    return join


def test_one_run_is_named_and_joined_only_after_a_yes(joined: Looker) -> None:
    code, out, err = joined([OTTER], "y")
    assert "join run of otter (digits, 3 members)?" in out
    assert (code, err) == (0, f"joins {INVITE}")


def test_a_no_joins_nothing(joined: Looker) -> None:
    code, _, err = joined([OTTER], "n")
    assert code == 1
    assert "none was joined" in err
    assert "joins" not in err


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("2", 0, f"joins {INVITE}"),
        ("none", 1, "none was"),
        ("3", 2, "1 to 2"),
        ("٢", 2, "not a number"),
        ("", 2, "not a number"),
    ],
)
def test_of_several_the_user_names_one(joined: Looker, answer: str, code: int, words: str) -> None:
    got, out, err = joined([OTTER, BAT], answer)
    assert "1  run of ·[31mbat (text, 1 member)" in out  # a stranger's escape does nothing
    assert "2  run of otter (digits, 3 members)" in out
    assert got == code
    assert words in err


def test_where_nobody_can_answer_the_lines_to_run_are_printed(joined: Looker) -> None:
    code, out, err = joined([OTTER, BAT])
    assert code == 2
    assert f"\nrun of otter (digits, 3 members):\n{invite_command(INVITE)}\n" in out
    assert f"(text, 1 member):\n{invite_command(OTHER)}\n" in out
    assert "nobody can answer" in err


@pytest.mark.parametrize("answer", ["y", None])
def test_of_private_runs_only_their_number_is_reported(joined: Looker, answer: str | None) -> None:
    code, out, err = joined([HIDDEN], answer)
    assert code == 1
    assert "1 private run is here" in out
    assert "join CODE" in err


def test_where_no_run_is_found_the_user_learns_what_to_do(joined: Looker) -> None:
    code, _, err = joined([], "y")
    assert code == 1
    assert "no run was found in the local network" in err


def test_without_zeroconf_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    assert run(app, ["join"], "p2pnode") == 1
    err = capsys.readouterr().err
    assert "cannot look for runs in the local network: the package zeroconf is missing; `pip install zeroconf`" in err
    assert err.count("\n") == 1


class FakeNode:
    """A node as far as the local network is concerned."""

    def __init__(self) -> None:
        self.says: Advert | None = None
        self.reported: list[str] = []
        self.listeners: list[Callable[[NodeEvent], None]] = []

    def advert(self) -> Advert | None:
        return self.says

    def say(self, kind: str, text: str) -> None:
        self.reported.append(f"{kind}: {text}")

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None:
        self.listeners.append(listener)


class FakeAdvertiser:
    """Notes what is shown."""

    log: list[str]
    broken = False

    def __init__(self, advert: Advert) -> None:
        if self.broken:
            raise LocalProblem("no such network")
        self.log.append(f"open {advert.members}")

    def update(self, advert: Advert) -> None:
        self.log.append(f"update {advert.members}")

    def close(self) -> None:
        self.log.append("goodbye")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    FakeAdvertiser.log, FakeAdvertiser.broken = [], False
    monkeypatch.setattr(node_lan, "Advertiser", FakeAdvertiser)
    monkeypatch.setattr(node_lan, "SOON", 0.001)
    monkeypatch.setattr(node_lan, "LATER", 0.001)
    return FakeAdvertiser.log


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def advert(members: int, port: int = 1) -> Advert:
    address = parse_address(f"/ip4/192.168.1.5/tcp/{port}/p2p/{PEER}")
    return Advert("a", "run of otter", "digits", members, Invite(ACCESS, (address,)))


async def test_a_node_is_shown_once_it_has_something_to_say_and_says_goodbye_when_it_leaves(log: list[str]) -> None:
    node: Any = FakeNode()
    async with visible_nearby(node, True):
        node.says = advert(1)
        await until(lambda: log == ["open 1"])
        node.says = advert(2)
        await until(lambda: log == ["open 1", "update 2"])
        node.says = advert(2, port=2)
        await until(lambda: log[2:] == ["goodbye", "open 2"])
        node.listeners[0](NodeEvent(0.0, "leaving", ""))
        await until(lambda: log[4:] == ["goodbye"])
    assert log[4:] == ["goodbye"]
    assert len(node.reported) == 1
    assert "`python -m p2pnode join`" in node.reported[0]


async def test_an_invisible_node_is_not_shown(log: list[str]) -> None:
    node: Any = FakeNode()
    node.says = advert(1)
    async with visible_nearby(node, False):
        await asyncio.sleep(0.05)
    assert log == node.reported == []


async def test_a_network_that_cannot_show_it_is_one_event_and_no_failure(log: list[str]) -> None:
    FakeAdvertiser.broken = True
    node: Any = FakeNode()
    async with visible_nearby(node, True):
        for members in range(1, 5):
            node.says = advert(members)
            await asyncio.sleep(0.02)
        await until(lambda: len(node.reported) == 1)
    assert "no such network" in node.reported[0]
    assert len(node.reported) == 1
    assert log == []
