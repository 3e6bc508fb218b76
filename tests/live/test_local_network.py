"""One local network of namespaces: a friend joins without any address, private runs and --no-lan stay out of sight."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.swarm_net import NoNamespaces
from p2pnode.wire.invite import decode_invite
from tests.live.cli_nodes import PATIENCE, NodeProcess, wait_for
from tests.live.namespaces import LOCAL, Internet, local_network

pytestmark = [pytest.mark.live, pytest.mark.nat, pytest.mark.xdist_group("lan")]

ROOT = Path(__file__).parents[2]
EVERYWHERE = ("--listen", "/ip4/0.0.0.0/tcp/0")
VISIBLE = r"in the local network `python -m p2pnode join` finds this run"
Opener = Callable[..., NodeProcess]

# Watches the network: prints a line whenever a service comes or goes, and reads stdin so that it ends with the test.
WATCH = """
import sys
from zeroconf import ServiceBrowser, Zeroconf
from p2pnode.discovery.lan import SERVICE
class Listener:
    def add_service(self, zc, kind, name): print("came", flush=True)
    def remove_service(self, zc, kind, name): print("went", flush=True)
    def update_service(self, zc, kind, name): pass
zeroconf = Zeroconf()
browser = ServiceBrowser(zeroconf, SERVICE, listener=Listener())
print("looks", flush=True)
sys.stdin.read()
"""

# Answers every question in the network with bytes and records that no honest node sends.
LIE = """
import os, random, socket, sys
from concurrent.futures import ThreadPoolExecutor
from zeroconf import ServiceInfo, Zeroconf
from p2pnode.discovery.lan import SERVICE
texts = [b"", b"\\xff" * 9, b"\\xfa" + b"code=" + b"5" * 245, b"\\x0bname=\\x1b[31mx", b"\\x08private=", b"\\x01=",
         b"\\x10private=\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff", b"\\x13members=99999999999", b"\\x04code\\x06code=1"]
zeroconf = Zeroconf()
host = f"liar-{os.getpid()}.local."
names = [f"liar {os.getpid()} {number}.{SERVICE}" for number in range(len(texts))]
infos = [ServiceInfo(SERVICE, name, 1, properties=text, server=host, addresses=[b"\\1\\2\\3\\4"])
         for name, text in zip(names, texts)]
with ThreadPoolExecutor(len(infos)) as threads:  # each takes seconds, because it first asks whether its name is free
    list(threads.map(zeroconf.register_service, infos))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
rng = random.Random(1)
for _ in range(3000):
    sender.sendto(b"\\0\\0\\x84\\0" + rng.randbytes(rng.randrange(400)), ("224.0.0.251", 5353))
print("lies", flush=True)
sys.stdin.read()
"""

LOOK = "from p2pnode.discovery.mdns import look_around; print(*look_around(), sep=chr(10))"


class Home:
    """The network, and the processes that a test starts in it."""

    def __init__(self, net: Internet, root: Path) -> None:
        self._net, self._root = net, root
        self._nodes: list[NodeProcess] = []
        self._scripts: list[subprocess.Popen[str]] = []

    def node(self, place: str, *arguments: str, terminal: int | None = None) -> NodeProcess:
        """`python -m p2pnode` at a place; its data directory is named after the place."""
        argv = self._net.inside(place, sys.executable, "-m", "p2pnode", *arguments)
        self._nodes.append(NodeProcess(self._root, place, argv=argv, terminal=terminal))
        return self._nodes[-1]

    def founder(self, *arguments: str) -> NodeProcess:
        return self.node("ann", "--name", "ann", *EVERYWHERE, *arguments)

    def script(self, place: str, code: str) -> subprocess.Popen[str]:
        """A script that has said its first word, which means that it is ready."""
        command = self._net.inside(place, sys.executable, "-c", code, LOCAL[place])
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        self._scripts.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def seen_by(self, place: str) -> str:
        """The adverts that can be seen from a place."""
        command = self._net.inside(place, sys.executable, "-c", LOOK)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30 * PATIENCE, check=True, cwd=ROOT
        ).stdout.strip()

    def stop(self) -> None:
        for node in self._nodes:
            node.stop()
        for process in self._scripts:
            process.kill()
            process.wait(10)


@pytest.fixture(scope="module")
def net() -> Iterator[Internet]:
    try:
        with local_network() as made:
            yield made
    except NoNamespaces as problem:
        pytest.skip(str(problem))


@pytest.fixture
def home(net: Internet, tmp_path: Path) -> Iterator[Home]:
    made = Home(net, tmp_path)
    yield made
    made.stop()


class Screen:
    """A terminal in which a user answers questions."""

    def __init__(self) -> None:
        self._mine, self.terminal = pty.openpty()
        self.shown = ""

    def until(self, pattern: str) -> None:
        deadline = time.monotonic() + 60 * PATIENCE
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown!r}"
            self._read(0.5)

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def _read(self, seconds: float) -> None:
        if select.select([self._mine], [], [], seconds)[0]:
            self.shown += os.read(self._mine, 65536).decode(errors="replace")


def test_a_friend_joins_without_any_address(home: Home) -> None:
    ann = home.founder()
    ann.says(VISIBLE)
    screen = Screen()
    bob = home.node("bob", "--name", "bob", "join", *EVERYWHERE, "--log-format", "plain", terminal=screen.terminal)
    screen.until(r"join run of ann \(no task, 1 member\)\? \[y/N\]")
    screen.type("y\n")
    wait_for("ann sees bob", lambda: "bob" in ann.peers(), 60)
    wait_for("bob is in the run", lambda: bob.status().get("run") == ann.status()["run"], 30)
    wait_for("two members are shown", lambda: "members=2" in home.seen_by("eve"), 60)


def test_where_nobody_can_answer_the_lines_to_run_are_printed(home: Home) -> None:
    ann = home.founder()
    ann.says(VISIBLE)
    bob = home.node("bob", "join")
    assert bob.ended() == 2, bob.out
    line = re.search(r"^python -m p2pnode join (\S+)$", bob.out, re.MULTILINE)
    assert line is not None
    invite = decode_invite(line[1])
    assert invite.access.run == ann.status()["run"]
    assert all(LOCAL["ann"] in address.text for address in invite.addresses)
    assert bob.err.count("\n") == 1


def test_of_a_private_run_only_its_existence_is_seen(home: Home) -> None:
    ann = home.founder("--private")
    ann.says("others in the local network see that a private run is here, and nothing else")
    seen = home.seen_by("bob")
    assert re.fullmatch(r"Advert\(key='[0-9a-f]{16}', name='', task='', members=0, invite=None\)", seen)
    bob = home.node("bob", "join")
    assert bob.ended() == 1, bob.out
    assert "1 private run is here" in bob.out
    assert "join CODE" in bob.err


def test_with_no_lan_a_node_is_not_seen(home: Home) -> None:
    hidden = home.founder("--no-lan")
    hidden.invite()
    seen = home.node("eve", "--name", "eve", *EVERYWHERE)
    seen.says(VISIBLE)
    bob = home.node("bob", "join")
    assert bob.ended() == 2, bob.out
    assert "run of eve" in bob.out
    assert "run of ann" not in bob.out
    assert "local network" not in hidden.out


def test_a_node_that_leaves_is_forgotten_at_once(home: Home) -> None:
    """Without a goodbye others would remember it for more than an hour."""
    watcher = home.script("bob", WATCH)
    ann = home.founder()
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "came\n"
    ann.signalled(signal.SIGTERM)
    assert ann.process.returncode == 0, ann.err
    assert watcher.stdout.readline() == "went\n"
    assert ann.left_behind() == []


def test_lies_in_the_network_harm_nobody(home: Home) -> None:
    home.script("eve", LIE)
    ann = home.founder()
    ann.says(VISIBLE)
    home.script("eve", LIE)
    bob = home.node("bob", "join")
    assert bob.ended() == 2, bob.out + bob.err
    assert "run of ann" in bob.out
    assert "\x1b" not in bob.out
    assert bob.err.count("\n") == 1
    assert ann.process.poll() is None
    assert ann.err == ""
    assert "zeroconf" not in ann.out
