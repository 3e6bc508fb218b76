"""The meeting point, with real processes on loopback: nodes meet at it, and it stays what it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("bootstrap")]

ROOT = Path(__file__).parents[2]
ADDRESS = r"^/ip4/127\.0\.0\.1/tcp/\d+/p2p/\w+$"
Opener = Callable[..., NodeProcess]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Opener]:
    opened: list[NodeProcess] = []

    def launch(name: str, *arguments: str, argv: list[str] | None = None) -> NodeProcess:
        opened.append(NodeProcess(tmp_path, name, *arguments, argv=argv))
        return opened[-1]

    yield launch
    for one in opened:
        one.stop()


def sees(one: NodeProcess, other: str) -> bool:
    return other in one.peers()


def meeting_point(process: Opener, *arguments: str) -> NodeProcess:
    return process("meeting", argv=[sys.executable, "-m", "p2pnode", "bootstrap", *arguments])


def test_founder_and_volunteer_meet_at_a_meeting_point_that_is_in_no_run(process: Opener) -> None:
    meeting = meeting_point(process, "--name", "meeting")
    address = meeting.says(ADDRESS)
    ann = process("ann", "--name", "ann", "--found", "--bootstrap", address)
    bob = process("bob", argv=[*pasted(ann.invite()), "--name", "bob"])
    for one, other in ((ann, "bob"), (bob, "ann"), (ann, "meeting"), (bob, "meeting"), (meeting, "ann")):
        wait_for(f"{one.data_dir.name} sees {other}", partial(sees, one, other), 60)
    run = ann.status()["run"]
    wait_for("bob is in the run", lambda: bob.status()["run"] == run != "", 60)
    status = meeting.status()
    assert (status["role"], status["run"], status["invite"]) == ("bootstrap", "", "")

    meeting.signalled(signal.SIGTERM)
    assert meeting.process.returncode == 0, meeting.err
    assert meeting.err == ""
    assert meeting.left_behind() == []
    ann.says(r"meeting \(\w+\) left", 15)


def test_a_volunteer_with_only_the_address_learns_what_is_missing(process: Opener) -> None:
    address = meeting_point(process).says(ADDRESS)
    lost = process("lost", "--bootstrap", address)
    assert lost.ended() == 2, lost.out
    assert lost.err.startswith("p2pnode: ")
    assert lost.err.count("\n") == 1, lost.err
    assert "the code of an invite" in lost.err


def test_started_again_it_has_the_same_address_and_its_nodes_come_back(process: Opener) -> None:
    meeting = meeting_point(process)
    address = meeting.says(ADDRESS)
    port = address.split("/")[4]
    ann = process("ann", "--name", "ann", "--found", "--bootstrap", address)
    wait_for("ann at the meeting point", lambda: "ann" in meeting.peers(), 60)
    meeting.process.kill()
    meeting.process.wait(10)
    again = meeting_point(process, "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    assert again.says(ADDRESS) == address
    wait_for("ann at the meeting point again", lambda: "ann" in again.peers(), 90)
    assert ann.process.poll() is None


def test_its_address_can_be_asked_for(process: Opener, tmp_path: Path) -> None:
    """What compose.yaml uses as a health check."""
    meeting = meeting_point(process)
    file = tmp_path / "address"
    ask = [sys.executable, "-m", "p2pnode.cli.address", str(file)]

    def asked() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ask, env=meeting.environment(), capture_output=True, text=True, timeout=30, check=False, cwd=ROOT
        )

    address = meeting.says(ADDRESS)
    wait_for("an answer", lambda: asked().returncode == 0, 20)
    assert file.read_text().strip() == address
    meeting.signalled(signal.SIGTERM)
    gone = asked()
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1, gone.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--listen", "nowhere"], 2, "--listen"),
        (["--anounce", "/ip4/1.2.3.4/tcp/1"], 2, "--announce"),
        (["--run", "abc"], 2, "--run"),
        (["--data-dir", "/proc/nothing/here"], 1, "/proc/nothing"),
    ],
)
def test_a_slip_gets_one_line(process: Opener, arguments: list[str], code: int, word: str) -> None:
    slip = meeting_point(process, *arguments)
    assert slip.ended() == code, slip.out
    assert word in slip.err
    assert slip.err.count("\n") == 1, slip.err


def test_help_needs_neither_torch_nor_hivemind() -> None:
    script = "import sys; from p2pnode.cli import app, run; run(app, ['bootstrap', '--help'], 'x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "p2pnode.config.resolve" in loaded
    assert not {"torch", "hivemind", "numpy"} & set(loaded)


def test_the_container_files_name_things_that_exist() -> None:
    unit = (ROOT / "bootstrap/p2pnode-bootstrap.service").read_text()
    assert "-m p2pnode bootstrap " in unit
    assert json.dumps(["python", "-m", "p2pnode"]) in (ROOT / "bootstrap/Containerfile").read_text()
    compose = (ROOT / "bootstrap/compose.yaml").read_text()
    assert "p2pnode.cli.address" in compose
    assert find_spec("p2pnode.cli.address") is not None
