"""The control socket: answers its owner, refuses nonsense, leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pnode.node import control
from p2pnode.node.control import ControlServer, NotRunning, ask, socket_path
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import NodeStatus, PeerState, Traffic

PEERS = tuple(PeerState(f"peer{number}", "n" * 40, "node", True, reached="a" * 100) for number in range(2000))


def status(peers: tuple[PeerState, ...] = ()) -> NodeStatus:
    return NodeStatus(
        id="me", name="otter", run="r", role="node", condition="alone", reason="", private=False, uptime_seconds=1.0,
        clock_offset_seconds=0.0, addresses=(), invite="", daemon_starts=1, traffic=Traffic(), peers=peers, events=(),
    )  # fmt: skip


async def execute(request: ControlRequest) -> ControlAnswer:
    if request.do == "pause":
        raise LocalProblem("there is nothing to pause")
    return ControlAnswer(said=request.do)


@contextlib.asynccontextmanager
async def serving(data_dir: Path, peers: tuple[PeerState, ...] = ()):
    left = asyncio.Event()
    server = ControlServer(data_dir, lambda: status(peers), left.set, execute)
    await server.start()
    try:
        yield left
    finally:
        await server.close()


async def asked(data_dir: Path, do: Any, timeout: float = 30.0):
    return await asyncio.to_thread(ask, data_dir, ControlRequest(do), timeout)


async def raw(data_dir: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(socket_path(data_dir)))
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def test_status_comes_whole(tmp_path):
    async with serving(tmp_path, PEERS):
        assert (await asked(tmp_path, "status")).status == status(PEERS)


async def test_orders_are_obeyed_or_refused_with_a_reason(tmp_path):
    async with serving(tmp_path):
        assert (await asked(tmp_path, "resume")).said == "resume"
        with pytest.raises(LocalProblem, match="nothing to pause"):
            await asked(tmp_path, "pause")


async def test_leave_reaches_the_node(tmp_path):
    async with serving(tmp_path) as left:
        await asked(tmp_path, "leave")
        async with asyncio.timeout(30):
            await left.wait()


async def test_only_the_owner_may_open_it_and_it_goes_away(tmp_path):
    async with serving(tmp_path):
        path = socket_path(tmp_path)
        assert path.parent == tmp_path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


async def test_a_dead_nodes_socket_is_replaced(tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "control.sock"))
    dead.close()
    with pytest.raises(NotRunning):
        await asked(tmp_path, "status")
    async with serving(tmp_path):
        assert (await asked(tmp_path, "status")).status is not None


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A directory with a short path, as a system's runtime directory has."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


async def test_a_long_path_gets_a_short_socket_elsewhere(tmp_path, runtime, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(runtime))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    async with serving(deep):
        path = socket_path(deep)
        assert path.is_relative_to(runtime)
        assert len(os.fsencode(path)) <= 107
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        monkeypatch.setattr(tempfile, "gettempdir", lambda: "/nowhere")  # a command in another environment
        assert (await asked(deep, "status")).status is not None
    assert list(deep.iterdir()) == []
    assert list(runtime.iterdir()) == []


def test_a_long_temporary_directory_is_passed_over(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(deep))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert socket_path(deep).parent == Path("/tmp", f"p2pnode-control-{os.getuid()}")


async def test_somebody_elses_directory_is_not_used(tmp_path, runtime, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(runtime))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    open_to_all = runtime / f"p2pnode-control-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    with pytest.raises(LocalProblem, match="control socket"):
        async with serving(deep):
            pass


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"{}\n",
        b'{"do":"format the disk"}\n',
        b'{"do":"leave","really":1}\n',
        b"[" * 4000 + b"\n",
        b"\xff\xfe\n",
        b"null\n",
    ],
)
async def test_nonsense_is_refused_and_the_node_goes_on(tmp_path, data):
    async with serving(tmp_path) as left:
        assert b'"problem":"not a request' in await raw(tmp_path, data)
        assert (await asked(tmp_path, "status")).status is not None
        assert not left.is_set()


async def test_a_line_without_end_is_refused(tmp_path):
    async with serving(tmp_path):
        answer = await raw(tmp_path, b"x" * 200_000)
        assert answer == b"" or b"at most" in answer
        assert (await asked(tmp_path, "status")).status is not None


async def test_a_silent_caller_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "TIME_LIMIT", 0.2)
    async with serving(tmp_path):
        assert await raw(tmp_path, b'{"do":') == b""


async def test_many_callers_at_once_are_bounded(tmp_path):
    async with serving(tmp_path):
        idle = [await asyncio.open_unix_connection(str(socket_path(tmp_path))) for _ in range(control.MAX_CONNECTIONS)]
        await asyncio.sleep(0.1)
        assert await raw(tmp_path, b'{"do":"status"}\n') == b""
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(30):
            while not await raw(tmp_path, b'{"do":"status"}\n'):  # noqa: ASYNC110 (the server sends no event)
                await asyncio.sleep(0.01)
        assert (await asked(tmp_path, "status")).status is not None


def answering_once(path: Path, answer: bytes) -> threading.Thread:
    """A socket at `path` that gives one fixed answer."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(1)
    listening.settimeout(30)

    def serve() -> None:
        with listening, contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("answer", [b"", b"{", b"{}", b"nonsense\n", b'{"problem":"no"}\n', b"x" * 2_000_000])
def test_a_bad_answer_is_one_line(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(control, "MAX_ANSWER_BYTES", 1_000_000)
    thread = answering_once(tmp_path / "control.sock", answer)
    with pytest.raises(LocalProblem, match="version") as caught:
        ask(tmp_path, ControlRequest("status"))
    assert "\n" not in str(caught.value)
    thread.join(30)


def test_a_node_that_does_not_answer_is_not_waited_for(tmp_path):
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(tmp_path / "control.sock"))
        stuck.listen(1)
        with pytest.raises(LocalProblem, match="does not answer"):
            ask(tmp_path, ControlRequest("status"), timeout=0.2)


@pytest.mark.parametrize("place", ["", "nothing/here"])
def test_no_node_is_said_so(tmp_path, place):
    with pytest.raises(NotRunning, match="no node is running"):
        ask(tmp_path / place, ControlRequest("status"))
