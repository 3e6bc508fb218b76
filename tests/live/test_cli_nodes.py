"""The command line, with real processes: found, invite, join, look, leave; and every slip in one line."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.ids import Identity
from p2pnode.wire.invite import decode_invite
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("cli")]
Opener = Callable[..., NodeProcess]
NOBODY = Identity(b"\7" * 32).peer_id


@pytest.fixture
def process(tmp_path) -> Iterator[Opener]:
    opened: list[NodeProcess] = []

    def launch(name: str, *arguments: str, argv: list[str] | None = None, terminal: int | None = None) -> NodeProcess:
        opened.append(NodeProcess(tmp_path, name, *arguments, argv=argv, terminal=terminal))
        return opened[-1]

    yield launch
    for one in opened:
        one.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def complaint(process: NodeProcess, code: int, seconds: float = 40.0) -> str:
    """The one line with which a process ended."""
    assert process.ended(seconds) == code, process.out + process.err
    assert process.err.startswith("p2pnode: ")
    assert process.err.count("\n") == 1, process.err
    assert process.left_behind() == []
    return process.err


# ---- the usual way ----


def test_found_invite_join_look_leave(process):
    ann = process("ann", "--name", "ann")
    bob = process("bob", argv=[*pasted(ann.invite()), "--name", "bob"])  # exactly the command, and a name to look for
    wait_for("ann sees bob", lambda: "bob" in ann.peers(), 40)
    wait_for("bob sees ann", lambda: "ann" in bob.peers(), 40)
    assert json.loads(bob.ask("status", "--json").stdout).keys() == bob.status().keys()
    wait_for("both are in the run", lambda: ann.status()["run"] == bob.status()["run"] != "", 60)
    wait_for("ann says connected", lambda: ann.status()["condition"] == "connected", 20)
    assert "bob" in ann.ask("peers").stdout
    assert stat.S_IMODE((ann.data_dir / "control.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((ann.data_dir / "identity.key").stat().st_mode) == 0o600

    (daemon,) = bob.daemons()
    bob.signalled(signal.SIGTERM)
    assert bob.process.returncode == 0, bob.err
    assert not daemon.is_running()
    assert bob.left_behind() == []
    assert bob.err == ""
    ann.says(r"bob \(\w+\) left", 15)
    assert "bob" not in ann.peers()

    stored = json.loads(bob.ask("peers", "--json").stdout)
    assert stored["from"] == "store"
    assert [row["id"] for row in stored["peers"]] == [ann.status()["id"]]

    left = ann.ask("leave")
    assert (left.returncode, left.stdout) == (0, "the node left\n")
    assert ann.ended(5) == 0
    assert ann.left_behind() == []


def test_the_same_command_again_goes_on(process):
    first = process("ann", "--private")
    invite, id = first.invite(), first.status()["id"]
    assert decode_invite(invite).access.private
    first.signalled(signal.SIGINT)
    assert first.process.returncode == 0
    again = process("ann", "--private")
    again.says("resumed run")
    assert decode_invite(again.invite()).access == decode_invite(invite).access
    assert again.status()["id"] == id
    assert again.status()["private"]
    assert again.status()["name"] == first.out.split()[1]


def test_json_lines_and_quiet(process):
    ann = process("ann", "--log-format", "json", "--name", "ann")
    ann.says('"kind": "invite"')
    ann.signalled(signal.SIGTERM)
    events = [json.loads(line) for line in ann.out.splitlines()]
    assert all({"time", "kind", "text", "warning"} <= event.keys() for event in events)
    assert {"started", "founded", "invite", "left"} <= {event["kind"] for event in events}
    quiet = process("bob", "--quiet")
    wait_for("the node is up", lambda: quiet.status().get("invite"), 40)
    quiet.signalled(signal.SIGTERM)
    assert quiet.out == quiet.err == ""


def test_the_live_view_and_ctrl_c_in_a_terminal(process):
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    ann = process("ann", "--name", "ann", terminal=terminal)
    os.close(terminal)
    shown, first = "", ("ann", "alone", "nobody else yet", "founded run", "invite a friend")
    deadline = time.monotonic() + 120
    while ann.process.poll() is None and time.monotonic() < deadline:
        shown += read_screen(screen)
        if all(words in shown for words in first) and "\x03" not in shown:
            os.write(screen, b"\x03")
            shown += "\x03"
    assert ann.ended(5) == 0
    for words in (*first, "left after"):
        assert words in shown
    assert re.search(r"python -m p2pnode join \w+\r\n", shown)
    assert ann.left_behind() == []


def read_screen(screen: int) -> str:
    if not select.select([screen], [], [], 0.5)[0]:
        return ""
    try:
        return os.read(screen, 65536).decode(errors="replace")
    except OSError:
        return ""  # the other side has closed it


def test_a_private_run_needs_its_key(process):
    ann = process("ann", "--private")
    access = decode_invite(ann.invite()).access
    there = ("--bootstrap", ann.address())
    without_run = process("bob", *there)
    without_key = process("cas", *there, "--run", access.run, "--join-timeout", "6")
    wrong = process("fay", *there, "--run", f"{access.run}.{'a' * 32}", "--join-timeout", "6")
    assert "private" in complaint(without_run, 2)
    assert "--run lacks its key" in complaint(without_key, 2)
    assert "the key in --run is wrong" in complaint(wrong, 2)
    assert not (without_key.data_dir / "run.json").exists()
    in_long = process("eve", *there, "--run", str(access))
    in_long.says("joined run")


# ---- ending ----


def test_twice_ctrl_c_ends_at_once(process):
    ann = process("ann")
    ann.invite()
    (daemon,) = ann.daemons()
    daemon.suspend()  # so that leaving takes its time
    ann.process.send_signal(signal.SIGINT)

    def leaving() -> bool:
        status = ask(ann.data_dir, ControlRequest("status")).status
        return status is not None and status.condition == "leaving"

    wait_for("leaving", leaving, 4)
    ann.signalled(signal.SIGINT)
    assert ann.process.returncode == 130
    wait_for("the daemon is gone", lambda: not daemon.is_running(), 10)
    assert ann.left_behind() == []


@pytest.mark.parametrize("pause", [0.3, 1.0, 2.0])
def test_leaving_while_starting(process, pause):
    ann = process("ann")
    time.sleep(pause)
    ann.signalled(signal.SIGTERM)
    assert ann.process.returncode in (0, -signal.SIGTERM)
    assert [
        child
        for child in psutil.process_iter(["cmdline"])
        if str(ann.data_dir) in " ".join(child.info["cmdline"] or [])
    ] == []
    assert ann.left_behind() == []


def test_a_stuck_node_ends_in_time(process):
    """A stopped daemon cannot hold up the end."""
    ann = process("ann")
    ann.invite()
    ann.daemons()[0].suspend()
    ann.signalled(signal.SIGTERM)
    assert ann.left_behind() == []


# ---- slips ----


def test_a_second_node_on_the_same_data_directory(process):
    ann = process("ann")
    ann.invite()
    second = process("ann")
    assert second.ended() == 1
    assert second.err.count("\n") == 1
    assert f"process {ann.process.pid}" in second.err
    assert "--data-dir" in second.err
    assert ann.status()["condition"] == "alone"


def test_a_port_in_use(process):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ann = process("ann", "--listen", f"/ip4/127.0.0.1/tcp/{port}")
        assert f"port {port} is in use" in complaint(ann, 1)
        assert not ann.data_dir.exists()


def test_a_run_without_anybody_to_find_it_through(process):
    ann = process("ann", "--run", "abcdefghijklmnopqrstuvwxyz")
    assert "--bootstrap" in complaint(ann, 2)
    assert not ann.data_dir.exists()


def test_a_public_run_does_not_become_private(process):
    ann = process("ann")
    ann.invite()
    ann.signalled(signal.SIGTERM)
    again = process("ann", "--private")
    assert "add --found" in complaint(again, 2)


def test_a_wrong_peer_id(process):
    ann = process("ann")
    address = ann.address()
    wrong = f"{address.partition('/p2p/')[0]}/p2p/{NOBODY}"
    bob = process("bob", "--bootstrap", wrong, "--join-timeout", "3")
    problem = complaint(bob, 2)
    assert "another peer answers there" in problem and "the address is stale" in problem
    assert not (bob.data_dir / "run.json").exists()
    cas = process("cas", "--bootstrap", wrong, "--bootstrap", address)  # any one that is right suffices
    cas.says("joined run")


def test_nobody_there(process):
    nowhere = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{NOBODY}"
    limited = process("ann", "--bootstrap", nowhere, "--join-timeout", "3")
    assert "--join-timeout" in complaint(limited, 1)
    assert "connection refused" in limited.err
    assert "left the swarm" not in limited.out
    assert not (limited.data_dir / "run.json").exists()
    patient = process("bob", "--bootstrap", nowhere)
    patient.says("still trying")
    assert patient.status()["condition"] == "searching"
    patient.signalled(signal.SIGTERM)
    assert patient.process.returncode == 0


def test_a_damaged_identity(process, tmp_path):
    (tmp_path / "ann").mkdir(mode=0o700)
    (tmp_path / "ann" / "identity.key").write_bytes(b"x" * 68)
    ann = process("ann")
    assert "is damaged" in complaint(ann, 1)
    assert (ann.data_dir / "identity.key").read_bytes() == b"x" * 68


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/data"])
def test_an_unusable_data_directory(process, place):
    ann = process("ann", "--data-dir", place)
    assert "--data-dir" in complaint(ann, 1)
    assert place in ann.err


# ---- doctor ----


def test_doctor_looks_at_everything(process):
    ann = process("ann")
    address = ann.address()
    wrong = f"{address.partition('/p2p/')[0]}/p2p/{NOBODY}"
    nowhere = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{Identity(bytes(32)).peer_id}"
    well = ann.ask("doctor", "--bootstrap", address, "--json", seconds=120)
    checks = {check["check"]: check for check in json.loads(well.stdout)["checks"]}
    assert well.returncode == 0, well.stdout
    assert well.stderr == ""
    assert set(checks) == {
        "python",
        "torch",
        "hivemind",
        "daemon",
        "port",
        "clock",
        "disk",
        "reachability",
        "bootstrap",
    }
    assert all(
        checks[name]["verdict"] == "ok"
        for name in ("python", "torch", "hivemind", "daemon", "port", "clock", "disk", "bootstrap")
    )
    ill = ann.ask("doctor", "--bootstrap", wrong, "--bootstrap", nowhere, seconds=120)
    assert ill.returncode == 1
    problems = [line for line in ill.stdout.splitlines() if line.startswith("problem")]
    assert len(problems) == 2
    assert "another peer answers there" in problems[0]
    assert "firewall" in problems[1]
    assert ann.status()["condition"] == "alone"


def test_doctor_finds_problems_of_this_machine(process, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (tmp_path / "ann").mkdir()
        (tmp_path / "ann" / "identity.key").write_bytes(b"short")
        port = taken.getsockname()[1]
        ann = process("ann", "doctor", "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--json")
        assert ann.ended(120) == 1
    checks = {check["check"]: check for check in json.loads(ann.out)["checks"]}
    assert checks["port"]["verdict"] == "problem"
    assert checks["disk"]["verdict"] == "problem"
    assert checks["daemon"]["verdict"] == "ok"
    assert all(check["remedy"] for check in checks.values() if check["verdict"] == "problem")
    assert ann.left_behind() == []
