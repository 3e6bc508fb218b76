"""One p2pd process: it does not outlive its node, leaves nothing behind, and says clearly why it cannot start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from p2pnode.network.libp2p.daemon import Daemon, DaemonOptions, daemon_flags, find_p2pd
from p2pnode.network.libp2p.orphans import (
    RECORD,
    DaemonRecord,
    read_record,
    socket_directory,
    sweep_orphan,
    write_record,
)
from p2pnode.wire.addresses import host_and_port
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity
from tests.live.live_nodes import EchoServer, address_of, network, started

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]

# A node in a process of its own; says its daemon's pid and port, then waits to be killed.
OWNER = """
import asyncio, sys
from pathlib import Path
from tests.live.live_nodes import EchoServer, address_of, daemon_pid, network
async def main():
    node = network(Path(sys.argv[1]), 1)
    await node.start(EchoServer())
    print(daemon_pid(node), (await address_of(node)).text, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def options(directory: Path, binary: Path | None = None) -> DaemonOptions:
    directory.mkdir(exist_ok=True)
    key_file = directory / "key"
    key_file.write_bytes(Identity(bytes(32)).to_key_file())
    return DaemonOptions(key_file=key_file, directory=directory, binary=binary)


def gone(pid: int, limit: float) -> bool:
    """Whether a process ends within the limit, or ten times that on a busy machine."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        try:
            process.wait(10 * limit)
        except psutil.TimeoutExpired:
            return process.status() == psutil.STATUS_ZOMBIE
    return True


def kill_an_owner(directory: Path) -> tuple[int, str, Path]:
    """Start a node in its own process and kill it hard: its daemon's pid, its address, its socket directory."""
    command = [sys.executable, "-c", OWNER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        pid, address = owner.stdout.readline().split()
        found = read_record(directory / "1")
        assert found is not None
        sockets = Path(found.sockets)
        assert psutil.Process(int(pid)).name() == "p2pd"
        owner.send_signal(signal.SIGKILL)
    return int(pid), address, sockets


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start sweeps")
def test_a_killed_node_takes_its_daemon_with_it_and_starts_again_on_its_port(tmp_path: Path) -> None:
    pid, address, sockets = kill_an_owner(tmp_path)
    assert gone(pid, 5)
    place = host_and_port(address)
    assert place is not None

    async def restart() -> None:
        again = network(tmp_path, 1, f"/ip4/127.0.0.1/tcp/{place[1]}")
        async with started((again, EchoServer())):
            assert (await address_of(again)).text == address

    uvloop.run(restart())
    assert not sockets.exists()


# A daemon that nobody has connected to yet: without the parent-death signal it would wait for its idle limit.
BARE_OWNER = """
import asyncio, sys
from pathlib import Path
from p2pnode.network.libp2p.daemon import Daemon, DaemonOptions
async def main():
    directory = Path(sys.argv[1])
    print((await Daemon.start(DaemonOptions(directory / "key", directory))).pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_the_kernel_ends_a_daemon_with_its_owner(tmp_path: Path) -> None:
    options(tmp_path)
    command = [sys.executable, "-c", BARE_OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    ended = gone(pid, 5)
    sweep_orphan(tmp_path)
    assert ended


def orphan(directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A p2pd that no living node owns, recorded as one would have left it."""
    sockets = directory / "p2pnode-test"
    sockets.mkdir()
    flags = daemon_flags(options(directory), sockets / "d")
    process = subprocess.Popen([str(find_p2pd()), *flags], stdout=subprocess.PIPE)
    assert process.stdout is not None
    while not process.stdout.readline().startswith(b"Peer ID"):
        assert process.poll() is None
    record(directory, process.pid, psutil.Process(process.pid).create_time(), sockets)
    return process, sockets


def record(
    directory: Path, pid: int, started_at: float, sockets: Path, owner: int = 2**22 + 1, owner_started: float = 1.0
) -> None:
    write_record(directory, DaemonRecord(pid, started_at, owner, owner_started, str(sockets)))


def test_a_recorded_orphan_is_ended_and_its_sockets_removed(tmp_path: Path) -> None:
    process, sockets = orphan(tmp_path)
    try:
        assert sweep_orphan(tmp_path)
        assert gone(process.pid, 5)
        assert not sockets.exists()
        assert not (tmp_path / RECORD).exists()
        assert not sweep_orphan(tmp_path)
    finally:
        process.kill()
        process.wait()


def test_a_process_with_a_recorded_pid_but_another_start_time_is_left_alone(tmp_path: Path) -> None:
    process, sockets = orphan(tmp_path)
    try:
        record(tmp_path, process.pid, psutil.Process(process.pid).create_time() - 60, sockets)
        assert not sweep_orphan(tmp_path)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_recorded_process_that_is_no_daemon_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as bystander:
        try:
            record(tmp_path, bystander.pid, psutil.Process(bystander.pid).create_time(), tmp_path / "p2pnode-x")
            assert not sweep_orphan(tmp_path)
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_the_daemon_of_a_running_node_is_left_alone(tmp_path: Path) -> None:
    process, sockets = orphan(tmp_path)
    with subprocess.Popen(["sleep", "30"]) as owner:
        try:
            born = psutil.Process(owner.pid).create_time()
            record(tmp_path, process.pid, psutil.Process(process.pid).create_time(), sockets, owner.pid, born)
            with pytest.raises(LocalProblem, match=f"process {owner.pid}"):
                sweep_orphan(tmp_path)
            assert process.poll() is None
        finally:
            owner.kill()
            process.kill()
            process.wait()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "other": 2}'])
def test_a_damaged_record_is_set_aside_and_said(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / RECORD).write_text(damage)
    assert not sweep_orphan(tmp_path)
    assert not (tmp_path / RECORD).exists()
    assert "a daemon of an earlier start may still run" in caplog.text


def test_a_record_cannot_make_us_delete_another_directory(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    record(tmp_path, 2**22 + 2, 1.0, precious)
    sweep_orphan(tmp_path)
    assert precious.exists()


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ours = network(tmp_path, 1, f"/ip4/127.0.0.1/tcp/{port}")
        with pytest.raises(LocalProblem, match=f"port {port} is in use") as caught:
            uvloop.run(ours.start(EchoServer()))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "1" / RECORD).exists()


def test_two_nodes_never_share_a_port(tmp_path: Path) -> None:
    """p2pd itself would start a second time on the same port without a word."""

    async def body() -> None:
        first = network(tmp_path, 1)
        async with started((first, EchoServer())):
            place = host_and_port((await address_of(first)).text)
            assert place is not None
            second = network(tmp_path, 2, f"/ip4/127.0.0.1/tcp/{place[1]}")
            with pytest.raises(LocalProblem, match="in use"):
                await second.start(EchoServer())
            await second.close()

    uvloop.run(body())


def test_a_missing_binary(tmp_path: Path) -> None:
    with pytest.raises(LocalProblem, match=r"missing at .*nowhere.*reinstall"):
        uvloop.run(Daemon.start(options(tmp_path, tmp_path / "nowhere")))


def test_a_binary_that_may_not_run(tmp_path: Path) -> None:
    binary = tmp_path / "p2pd"
    binary.write_bytes(b"x")
    binary.chmod(0o600)
    with pytest.raises(LocalProblem, match=r"chmod \+x"):
        uvloop.run(Daemon.start(options(tmp_path, binary)))


def test_a_damaged_binary(tmp_path: Path) -> None:
    binary = tmp_path / "p2pd"
    binary.write_bytes(b"\x7fELF garbage")
    binary.chmod(0o700)
    with pytest.raises(LocalProblem, match=r"cannot run p2pd.*reinstall") as caught:
        uvloop.run(Daemon.start(options(tmp_path, binary)))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / RECORD).exists()


def test_a_daemon_that_never_comes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pnode.network.libp2p.daemon.START_LIMIT", 0.5)
    binary = tmp_path / "p2pd"
    binary.write_text("#!/bin/sh\nexec sleep 30\n")
    binary.chmod(0o700)
    with pytest.raises(LocalProblem, match="did not come up"):
        uvloop.run(Daemon.start(options(tmp_path, binary)))


def test_a_wrong_key_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    ours = network(tmp_path, 1)
    (tmp_path / "1" / "key").write_bytes(Identity(bytes(32)).to_key_file())
    with pytest.raises(LocalProblem, match="key file is that of"):
        uvloop.run(ours.start(EchoServer()))
    assert not (tmp_path / "1" / RECORD).exists()


def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children()}  # of tests that ran in this process earlier

    async def body() -> set[int]:
        ours = network(tmp_path, 1)
        starting = asyncio.create_task(ours.start(EchoServer()))
        async with asyncio.timeout(60):
            while not (tmp_path / "1" / RECORD).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        children = {child.pid for child in psutil.Process().children()} - before
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await ours.close()
        return children

    children = uvloop.run(body())
    assert children
    assert all(gone(pid, 5) for pid in children)
    assert not (tmp_path / "1" / RECORD).exists()


def test_a_chatty_daemon_does_not_block_and_is_bounded(tmp_path: Path) -> None:
    binary = tmp_path / "p2pd"
    binary.write_text(
        "#!/bin/sh\necho 'Peer ID: x'\nhead -c 300000 /dev/zero | tr '\\0' y\nseq 1 50000\ntouch done\nexec sleep 30\n"
    )
    binary.chmod(0o700)
    here = os.getcwd()
    os.chdir(tmp_path)

    async def body() -> None:
        daemon = await Daemon.start(options(tmp_path, binary))
        try:
            async with asyncio.timeout(60):
                while not (tmp_path / "done").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert len(daemon._output) <= 20
        finally:
            await daemon.stop()

    try:
        uvloop.run(body())
    finally:
        os.chdir(here)


def test_p2pd_is_found_without_importing_hivemind() -> None:
    code = "import sys; from p2pnode.network.libp2p.daemon import find_p2pd; print(find_p2pd())"
    code += "; sys.exit('hivemind' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip().endswith("p2pd")


def test_socket_directories_of_dead_processes_are_swept_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale, living, foreign = (tmp_path / f"p2pnode-{name}-x" for name in (dead.pid, os.getpid(), "notes"))
    for directory in (stale, living, foreign):
        directory.mkdir()
        (directory / "d").touch()
    fresh = socket_directory()
    assert not stale.exists()
    assert living.exists()
    assert foreign.exists()
    assert fresh.stat().st_mode & 0o777 == 0o700
