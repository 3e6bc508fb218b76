"""The daemon dies or hangs under us: noticed, replaced, and nobody hangs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from p2pnode.network.base import Health, MemorySink, StreamLimits
from p2pnode.network.libp2p.daemon import Daemon
from p2pnode.network.libp2p.hivemind import HivemindNetwork
from p2pnode.wire.errors import NetworkDown, P2pnodeError
from tests.live.live_nodes import EchoServer, address_of, daemon_pid, network, started, until

pytestmark = pytest.mark.live

NOTICED_WITHIN = 60.0  # ten seconds on an idle machine
REPLACED_WITHIN = 20.0


async def answered(asking: HivemindNetwork, serving: HivemindNetwork, limit: float) -> None:
    """Wait until a call gets through."""
    async with asyncio.timeout(5 * limit):
        while True:
            try:
                assert await asking.call(serving.peer, b"hello", 2) == b"hello"
                return
            except P2pnodeError:
                await asyncio.sleep(0.2)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_a_lost_daemon_is_noticed_and_replaced(tmp_path: Path, blow: signal.Signals) -> None:
    async def body() -> None:
        ours, other = network(tmp_path, 1), network(tmp_path, 2)
        slow = EchoServer(delay=60)
        async with started((ours, EchoServer()), (other, slow)):
            await ours.contact(await address_of(other), 10)
            before = await address_of(ours)
            changes: list[Health] = []
            ours.on_change(changes.append)
            calling = asyncio.create_task(ours.call(other.peer, b"", 100))
            await asyncio.sleep(0.5)

            first = daemon_pid(ours)
            os.kill(first, blow)
            async with asyncio.timeout(NOTICED_WITHIN):
                with pytest.raises(NetworkDown):
                    await calling
            await until(lambda: ours.health.state == "up", REPLACED_WITHIN)

            states = [
                health.state for health in changes
            ]  # on a busy machine a new daemon may be late and replaced again
            assert states[0] == "down" and states[-1] == "up"
            assert changes[0].reason
            assert ours.health.generation >= 2
            assert not psutil.pid_exists(first)
            assert await address_of(ours) == before
            slow.delay = 0
            await answered(ours, other, 10)
            await answered(other, ours, 10)
            found: set[str] = set()
            async with asyncio.timeout(NOTICED_WITHIN):  # the new daemon's table of peers fills by and by
                while found != {ours.peer, other.peer}:
                    found = set(await ours.nearest("peers/x", 5))

    uvloop.run(body())


def test_an_answer_too_late_does_no_harm_and_a_lost_connection_to_a_living_daemon_is_replaced(tmp_path: Path) -> None:
    """hivemind's reader ends with an error at an answer whose call is just given up; then nobody is heard any more."""

    async def body() -> None:
        ours, other = network(tmp_path, 1), network(tmp_path, 2)
        slow = EchoServer()
        async with started((ours, EchoServer()), (other, slow)):
            await ours.contact(await address_of(other), 10)
            await give_up_when_the_answer_is_here(ours, other)
            await answered(ours, other, 10)
            await answered(other, ours, 10)
            assert ours.health.generation == 1 and not reader_of(ours).done()

            reasons: list[str] = []
            ours.on_change(lambda health: reasons.append(health.reason))
            slow.delay = 60
            calling = asyncio.create_task(ours.call(other.peer, b"", 100))
            await asyncio.sleep(0.1)
            reader_of(ours).cancel()
            async with asyncio.timeout(NOTICED_WITHIN):
                with pytest.raises(NetworkDown):
                    await calling
            await until(lambda: ours.health.state == "up", REPLACED_WITHIN)
            assert reasons[0].startswith("the connection to p2pd is lost")
            await answered(other, ours, 10)

    uvloop.run(body())


def reader_of(each: HivemindNetwork) -> asyncio.Task[None]:
    """hivemind's task that reads all answers and requests."""
    return each._link._p2p._client.control._read_task  # type: ignore[union-attr, no-any-return]


async def give_up_when_the_answer_is_here(asking: HivemindNetwork, serving: HivemindNetwork) -> None:
    """Cancel a call after its answer was read and before it is handed over."""
    control = sys.modules["hivemind.p2p.p2p_daemon_bindings.control"]
    read = control.read_pbmsg_safe
    calling: asyncio.Task[bytes] | None = None

    async def read_and_give_up(reader: asyncio.StreamReader, message: Any) -> None:
        await read(reader, message)
        if calling is not None and message.HasField("callUnaryResponse"):
            calling.cancel()

    control.read_pbmsg_safe = read_and_give_up  # type: ignore[attr-defined]
    try:
        await answered(asking, serving, 10)  # what is being read was begun before
        calling = asyncio.create_task(asking.call(serving.peer, b"late", 30))
        with pytest.raises(asyncio.CancelledError):
            await calling
    finally:
        control.read_pbmsg_safe = read  # type: ignore[attr-defined]


def test_a_stream_under_way_ends_when_the_daemon_dies(tmp_path: Path) -> None:
    async def body() -> None:
        ours, other = network(tmp_path, 1), network(tmp_path, 2)
        async with started((ours, EchoServer()), (other, EchoServer(content=bytes(300_000_000)))):
            await ours.contact(await address_of(other), 10)
            sink = MemorySink()
            fetching = asyncio.create_task(ours.fetch(other.peer, b"", sink, StreamLimits(max_bytes=10**9)))
            await until(lambda: sink.offset > 0, 5)
            os.kill(daemon_pid(ours), signal.SIGKILL)
            async with asyncio.timeout(NOTICED_WITHIN):
                with pytest.raises(NetworkDown):
                    await fetching

    uvloop.run(body())


def test_while_down_operations_say_so_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        ours = network(tmp_path, 1)
        async with started((ours, EchoServer())):
            key = tmp_path / "1" / "key"
            key.rename(key.with_suffix(".away"))
            os.kill(daemon_pid(ours), signal.SIGKILL)
            await until(lambda: ours.health.state == "down", NOTICED_WITHIN)
            with pytest.raises(NetworkDown):
                await ours.nearest("peers/x", 5)
            await until(lambda: "p2pd ended at its start" in ours.health.reason, 10)
            key.with_suffix(".away").rename(key)
            await until(lambda: ours.health.state == "up", 20)

    uvloop.run(body())


def test_closing_with_a_stopped_daemon_is_quick_and_leaves_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        ours = network(tmp_path, 1)
        await ours.start(EchoServer())
        pid = daemon_pid(ours)
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(NOTICED_WITHIN):  # without a limit of its own it would wait for the daemon
            await ours.close()
        assert not psutil.pid_exists(pid)
        assert not (tmp_path / "1" / "daemon.json").exists()

    uvloop.run(body())


def test_nothing_noisy_is_said_when_daemons_die(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """hivemind's own tasks are ended and seen: no "Task exception was never retrieved", no tracebacks."""

    async def body() -> None:
        ours, other = network(tmp_path, 1), network(tmp_path, 2)
        async with started((ours, EchoServer()), (other, EchoServer())):
            await ours.contact(await address_of(other), 10)
            looking = asyncio.create_task(ours.nearest("peers/y", 5))
            os.kill(daemon_pid(ours), signal.SIGKILL)
            await until(lambda: ours.health.generation >= 2, REPLACED_WITHIN)
            await asyncio.gather(looking, return_exceptions=True)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert len(left) < 40, left
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []

    with caplog.at_level(logging.INFO):
        uvloop.run(body())
        gc.collect()
    noise = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert noise == []


def test_a_daemon_killed_while_it_starts_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before it is ready, once after it was ready and before we are connected to it."""
    killed: list[int] = []
    come_up = Daemon._come_up

    async def killed_early(self: Daemon) -> None:
        if len(killed) == 1:
            await come_up(self)
        if len(killed) < 2:
            killed.append(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        if len(killed) != 2 or killed[1] != self.pid:
            await come_up(self)

    monkeypatch.setattr(Daemon, "_come_up", killed_early)

    async def body() -> None:
        ours = network(tmp_path, 1)
        async with started((ours, EchoServer())):
            assert ours.health == Health("up", 1)
            assert daemon_pid(ours) not in killed

    uvloop.run(body())
    assert len(killed) == 2
