"""Network namespaces with one shaped and delayed link each; all are removed at the end, with the processes in them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmarks.swarm_relay import DEVICE
from p2pnode.wire.errors import LocalProblem

LIMIT = 20.0  # seconds for one command
MTU = 9000  # fewer packets for the relay, which shares the cores with those it serves
BURST = "64kb"
NETWORK = "44.78.0"  # looks public, since libp2p asks nobody about private addresses; nothing leaves the namespaces
KNOCK = """
import socket, sys, time
def knock():
    begun = time.perf_counter()
    try:
        socket.create_connection((sys.argv[1], 9), 5).close()
    except OSError:
        return (time.perf_counter() - begun) * 1000
print(min(knock() for _ in range(5)))
"""


class NoNamespaces(LocalProblem):
    """This system does not allow network namespaces; the message says why."""


class Links:
    """`count` places, each a namespace with an address of its own."""

    def __init__(self, count: int, mbit: float, round_trip_ms: float) -> None:
        self._prefix = f"p2pnode-swarm-{os.getpid()}-{secrets.token_hex(2)}"
        self._mbit, self._delay = mbit, round_trip_ms / 2
        self.places = list(range(count))
        self._relay: subprocess.Popen[bytes] | None = None

    def name(self, place: int) -> str:
        return f"{self._prefix}-{place}"

    def address(self, place: int) -> str:
        return f"{NETWORK}.{place + 1}"

    def build(self) -> None:
        for place in self.places:
            run("ip", "netns", "add", self.name(place))
            run("ip", "-n", self.name(place), "link", "set", "lo", "up")
        words = [f"{self.name(place)}={self.address(place)}" for place in self.places]
        command = [sys.executable, "-m", "benchmarks.swarm_relay", str(self._mbit), str(self._delay), *words]
        self._relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != b"ready\n":
            raise NoNamespaces("the relay between the namespaces did not start; is there /dev/net/tun?")
        for place in self.places:
            self._open(place)

    def _open(self, place: int) -> None:
        name = self.name(place)
        run("ip", "-n", name, "addr", "add", f"{self.address(place)}/24", "dev", DEVICE)
        run("ip", "-n", name, "link", "set", "dev", DEVICE, "mtu", str(MTU), "up")
        shape = f"root tbf rate {self._mbit}mbit burst {BURST} latency 400ms"
        run("tc", "-n", name, "qdisc", "add", "dev", DEVICE, *shape.split())

    def inside(self, place: int, *command: str) -> list[str]:
        """The command line that runs a command in one place."""
        return ["ip", "netns", "exec", self.name(place), *command]

    def bytes_sent(self, places: list[int]) -> int:
        """Bytes sent by the interfaces' own counters, headers and acknowledgements included."""
        total = 0
        for place in places:
            links = json.loads(run("ip", "-n", self.name(place), "-j", "-s", "link", "show", "dev", DEVICE))
            total += int(links[0]["stats64"]["tx"]["bytes"])
        return total

    def round_trip_ms(self) -> float:
        """One round trip, the best of five: how long a closed port takes to refuse."""
        return float(run(*self.inside(0, sys.executable, "-S", "-E", "-c", KNOCK, self.address(1))))

    def clear(self) -> None:
        """End whatever still runs in the namespaces; only our own processes ever were there."""
        for place in self.places:
            with suppress(NoNamespaces):
                for pid in run("ip", "netns", "pids", self.name(place)).split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        self.clear()
        if self._relay is not None and self._relay.stdin is not None:
            self._relay.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._relay.wait(5)
            self._relay.kill()
            self._relay.wait()
        for place in self.places:
            subprocess.run(["ip", "netns", "del", self.name(place)], capture_output=True, timeout=LIMIT, check=False)


@contextmanager
def links(count: int, mbit: float, round_trip_ms: float) -> Iterator[Links]:
    """Build them, and take them down whatever happens; NoNamespaces where the system forbids it."""
    check_namespaces("ip", "tc")
    made = Links(count, mbit, round_trip_ms)
    try:
        made.build()
        yield made
    finally:
        made.remove()


PACKAGES = {"ip": "iproute2", "tc": "iproute2", "iptables": "iptables"}


def check_namespaces(*tools: str) -> None:
    """Raise NoNamespaces unless we are root and these programs are installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
        raise NoNamespaces(f"this needs {' and '.join(missing)}; install with `apt-get install {packages}`")
    if os.geteuid() != 0:
        raise NoNamespaces("this needs root, to make network namespaces")


def run(*command: str) -> str:
    """What a command prints; NoNamespaces with its complaint when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise NoNamespaces(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
