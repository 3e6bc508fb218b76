"""Ports: the one of last time is taken again, unless something else has it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from p2pnode.network.libp2p import hivemind
from p2pnode.network.libp2p.orphans import RECORD, forget_daemon, read_record, record_daemon, sweep_orphan
from p2pnode.network.libp2p.ports import with_port

ANY = "/ip4/127.0.0.1/tcp/0"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/ip4/1.2.3.4/tcp/0", "/ip4/1.2.3.4/tcp/77"),
        ("/ip4/1.2.3.4/tcp/5", "/ip4/1.2.3.4/tcp/5"),
        ("/ip4/1.2.3.4/udp/0/quic", "/ip4/1.2.3.4/udp/0/quic"),
    ],
)
def test_only_port_0_is_replaced(text: str, found: str) -> None:
    assert with_port(text, 77) == found


def test_the_port_of_last_time_is_taken_again() -> None:
    port = free_port()
    lease = asyncio.run(hivemind._lease((ANY,), port))
    assert lease.listen == (f"/ip4/127.0.0.1/tcp/{port}",)
    lease.release()


def test_a_port_that_somebody_else_has_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hivemind, "PORT_WAIT", 0.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        lease = asyncio.run(hivemind._lease((ANY,), taken))
        assert lease.listen != (f"/ip4/127.0.0.1/tcp/{taken}",)
        lease.release()


def test_a_directory_in_the_place_of_the_daemons_record_costs_the_record_only(tmp_path: Path) -> None:
    """Nor when the names under which it would be kept are taken too."""
    for name in (RECORD, f"{RECORD}.damaged", f"{RECORD}.damaged.2", f"{RECORD}.damaged.3"):
        (tmp_path / name / "something").mkdir(parents=True)
    assert read_record(tmp_path) is None
    assert not sweep_orphan(tmp_path)
    record_daemon(tmp_path, 1, tmp_path / "sockets")
    forget_daemon(tmp_path, 1)
    assert (tmp_path / RECORD / "something").is_dir()
