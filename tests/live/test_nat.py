"""Behind NAT: nodes that cannot be dialled are reached through the meeting point, or directly where that works."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.swarm_net import NoNamespaces
from tests.live.cli_nodes import PATIENCE
from tests.live.namespaces import PUBLIC, Internet, internet

pytestmark = [pytest.mark.live, pytest.mark.nat, pytest.mark.xdist_group("nat")]

SCRIPT = Path(__file__).with_name("nat_node.py")
ROOT = Path(__file__).parents[2]
EVERYWHERE = "/ip4/0.0.0.0/tcp/4000"
PORT = 4000
SIZE = 3_000_000
T = TypeVar("T")

DIAL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 4).close()
except OSError as error:
    sys.exit(f"cannot be dialled: {error}")
"""


class Node:
    """One process in one of the namespaces."""

    def __init__(self, net: Internet, place: str, data_dir: Path, **options: Any) -> None:
        words = {"data_dir": str(data_dir / place), "seed": sum(place.encode()), **options}
        self._errors = (data_dir / f"{place}.err").open("w+")
        self._process = subprocess.Popen(
            net.inside(place, sys.executable, str(SCRIPT), json.dumps(words)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._peer = ""

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")

    def _hear(self, seconds: float) -> dict[str, Any]:
        line = self._said.get(timeout=seconds)
        assert line, f"it ended: {Path(self._errors.name).read_text()[-2000:]}"
        return dict(json.loads(line))

    @property
    def peer(self) -> str:
        """Its peer id, once it is up."""
        self._peer = self._peer or self._hear(200)["peer"]
        return self._peer

    def ask(self, do: str, **arguments: Any) -> Any:
        """The result of a command; AssertionError with what went wrong."""
        assert self.peer
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._hear(200)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def relayed(self) -> list[str]:
        return [address for address in self.ask("addresses") if "/p2p-circuit/" in address]

    def leave(self) -> None:
        """Ask it to end, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """p2pd goes with its node, however that ends."""
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._errors.close()


class World:
    """The meeting point, a public node, a node behind NAT with nothing set, and one that does not even listen."""

    def __init__(self, net: Internet, data_dir: Path) -> None:
        self.net = net
        self.nodes: list[Node] = []
        self._data_dir = data_dir

    def populate(self) -> None:
        # The second home's router lets nothing out but to the meeting point: whatever it does goes through the relay.
        self.net.iptables("router2", f"-I FORWARD -i in ! -d {PUBLIC['meeting']} -j DROP")
        self.meeting = self._add("meeting", listen=[EVERYWHERE], relay_service=True)
        address = f"/ip4/{PUBLIC['meeting']}/tcp/{PORT}/p2p/{self.meeting.peer}"
        self.public = self._add("public", listen=[EVERYWHERE], bootstrap=[address])
        self.natted = self._add("home", listen=[EVERYWHERE], bootstrap=[address])
        self.quiet = self._add("home2", no_listen=True, bootstrap=[address])
        for node in (self.public, self.natted, self.quiet):
            node.ask("contact", address=address)

    def _add(self, place: str, **options: Any) -> Node:
        self.nodes.append(Node(self.net, place, self._data_dir, **options))
        return self.nodes[-1]

    def dial(self, place: str, host: str) -> str:
        """Why a plain TCP connection fails, or "" when it comes about."""
        command = self.net.inside(place, sys.executable, "-S", "-E", "-c", DIAL, host, str(PORT))
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr.strip()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        with internet() as net:
            made = World(net, tmp_path_factory.mktemp("nat"))
            try:
                made.populate()
                yield made
            finally:
                for node in made.nodes:
                    node.leave()
                for node in made.nodes:
                    node.stop()
    except NoNamespaces as problem:
        pytest.skip(str(problem))


def eventually(what: str, look: Callable[[], T], seconds: float) -> T:
    """What `look` returns once it is true."""
    deadline = time.monotonic() + PATIENCE * seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE * seconds} s: {what}")


def talk(one: Node, other: Node) -> None:
    """A call and a stream, from one to the other."""
    assert one.ask("call", peer=other.peer, text="hello") == "hello"
    assert one.ask("fetch", peer=other.peer, size=SIZE) == SIZE


def test_the_nodes_behind_nat_cannot_be_dialled(world: World) -> None:
    assert world.dial("home", PUBLIC["public"]) == ""
    assert world.dial("home2", PUBLIC["meeting"]) == ""
    inside = ("10.77.1.2", PUBLIC["router"], "10.77.2.2", PUBLIC["router2"])
    tried = [("home2", PUBLIC["public"]), *(("public", address) for address in inside)]
    with ThreadPoolExecutor(len(tried)) as threads:  # each waits for seconds, because nothing answers
        for problem in threads.map(lambda way: world.dial(*way), tried):
            assert "cannot be dialled" in problem


def test_a_node_that_does_not_listen_is_reached_through_the_relay(world: World) -> None:
    addresses = eventually("a relayed address", world.quiet.relayed, 10)
    world.public.ask("learn", peer=world.quiet.peer, addresses=addresses)
    talk(world.public, world.quiet)
    talk(world.quiet, world.public)
    assert all("/p2p-circuit" in address for address in world.public.ask("connections", peer=world.quiet.peer))


def test_a_node_finds_out_that_it_is_behind_nat(world: World) -> None:
    addresses = eventually("a relayed address", world.natted.relayed, 60)
    world.public.ask("learn", peer=world.natted.peer, addresses=addresses)
    talk(world.public, world.natted)
    talk(world.natted, world.public)


def test_a_way_that_needs_no_relay_is_found(world: World) -> None:
    """The node behind NAT can dial the public one, and does, by hole punching or because it heard of it in the DHT."""

    def direct() -> bool:
        world.public.ask("call", peer=world.natted.peer, text="hello")
        ways = world.public.ask("connections", peer=world.natted.peer)
        return any("/p2p-circuit" not in way for way in ways)

    assert eventually("a direct connection", direct, 30)


def test_two_nodes_behind_nat_reach_each_other(world: World) -> None:
    eventually("a relayed address", world.natted.relayed, 60)
    world.natted.ask("learn", peer=world.quiet.peer, addresses=world.quiet.relayed())
    talk(world.natted, world.quiet)
    talk(world.quiet, world.natted)
