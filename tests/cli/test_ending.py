"""Ending in time: politely, by force when that takes too long, and at once when asked twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import pytest

from p2pnode.cli.ending import complain
from p2pnode.node.event_loop import run_loop
from p2pnode.node.process import listening_port

PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"

SCRIPT = """
import asyncio, signal, sys, threading, time
from p2pnode.cli.ending import Ending, end_process
from p2pnode.node.event_loop import run_loop
import p2pnode.cli.ending

how, swept, limit, hangup = sys.argv[1:]
p2pnode.cli.ending.LEAVE_LIMIT = float(limit)
signal.signal(signal.SIGHUP, signal.Handlers[hangup])  # whoever started the tests may have ignored it

async def work():
    left = asyncio.Event()
    leave = {"polite": left.set, "deaf": lambda: print("asked", flush=True), "stuck": lambda: time.sleep(60)}[how]
    Ending(leave, lambda: open(swept, "w").close())
    threading.Thread(target=time.sleep, args=(60,)).start()  # a thread that would hold up a usual exit
    print("ready", flush=True)
    await left.wait()
    return 0

end_process(run_loop(work()))
"""
LIMIT = 30  # seconds to wait for a process that ends at once on an idle machine


@pytest.fixture
def start(tmp_path):
    """Start a process that ends in the given way; it is up when the function returns."""
    started = []

    def starting(how: str, limit: float = 60.0, hangup: str = "SIG_DFL") -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", SCRIPT, how, str(tmp_path / "swept"), str(limit), hangup]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_politely(start, tmp_path, number):
    process = start("polite")
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")
    assert not (tmp_path / "swept").exists()


def test_a_node_under_nohup_survives_its_terminal(start):
    process = start("deaf", hangup="SIG_IGN")
    process.send_signal(signal.SIGHUP)  # ignored, or the next one would be the second and end the process at once
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked\n"
    assert process.poll() is None


@pytest.mark.parametrize("how", ["deaf", "stuck"])
def test_too_slow_an_end_is_forced_even_when_the_loop_hangs(start, tmp_path, how):
    process = start(how, limit=1.0)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT)
    assert time.monotonic() - begun > 0.9
    assert process.returncode == 1
    assert err == "p2pnode: leaving took too long, so the process was ended\n"
    assert (tmp_path / "swept").exists()


def test_a_second_signal_ends_at_once(start, tmp_path):
    process = start("deaf")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, "")
    assert (tmp_path / "swept").exists()


def test_the_port_most_addresses_have_is_the_one_listened_on():
    mapped = f"/ip4/198.51.100.1/tcp/1024/p2p/{PEER}"
    own = [f"/ip4/{host}/tcp/31337/p2p/{PEER}" for host in ("192.168.1.2", "127.0.0.1")]
    relayed = f"/ip4/203.0.113.1/tcp/9/p2p/{PEER}/p2p-circuit/p2p/{PEER}"
    assert listening_port((mapped, *own, relayed)) == 31337
    assert listening_port((relayed,)) is None
    assert listening_port(()) is None


def test_a_peers_words_in_a_complaint_cannot_steer_the_terminal(capsys):
    assert complain("refused: \x1b]52;c;ZXZpbA==\x07 \x1b[2J\u202e so there\nand more", 3) == 3
    said = capsys.readouterr().err
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert said.startswith("p2pnode: refused: ")
    assert said.count("\n") == 1


def test_what_fails_at_the_end_is_heard_and_does_not_change_the_outcome(caplog: pytest.LogCaptureFixture) -> None:
    async def clumsy() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            raise RuntimeError("a bug")

    async def work() -> int:
        kept.append(asyncio.create_task(clumsy()))
        await asyncio.sleep(0)
        return 7

    kept: list[asyncio.Task[None]] = []
    assert run_loop(work()) == 7
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]


def test_a_task_that_will_not_end_is_said_and_left(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("p2pnode.node.event_loop.TASKS_LIMIT", 0.01)

    async def deaf() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(60.0)

    async def work() -> int:
        kept.append(asyncio.create_task(deaf()))
        await asyncio.sleep(0)
        return 7

    kept: list[asyncio.Task[None]] = []
    assert run_loop(work()) == 7
    assert "did not end" in caplog.text
