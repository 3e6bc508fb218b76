"""A small internet in network namespaces: a switch, two public machines, and two homes behind routers with NAT.

Or only one home network (`local_network`).

Nothing can leave it: none of the namespaces has a link to the machine's own network. The public side uses addresses
that look public, since libp2p asks nobody about private ones (AutoNAT) and does not tell relays in them to others.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from benchmarks.swarm_net import LIMIT, check_namespaces, run

PUBLIC = {"meeting": "44.77.0.1", "public": "44.77.0.2", "router": "44.77.0.3", "router2": "44.77.0.4"}
LOCAL = {"ann": "192.168.77.1", "bob": "192.168.77.2", "eve": "192.168.77.3"}
HOMES = {"home": ("router", "10.77.1"), "home2": ("router2", "10.77.2")}


class Internet:
    """The namespaces of one run, named uniquely. Use `internet()`."""

    def __init__(self) -> None:
        self._prefix = f"p2pnode-{os.getpid()}-{secrets.token_hex(3)}"

    def name(self, place: str) -> str:
        return f"{self._prefix}-{place}"

    def inside(self, place: str, *command: str) -> list[str]:
        """A command line that runs in one of the namespaces (with the pid of `ip` itself: it replaces it)."""
        return ["ip", "netns", "exec", self.name(place), *command]

    def build(self) -> None:
        self._connect(PUBLIC, HOMES)
        for home, (router, net) in HOMES.items():
            self._connect_home(home, router, net)

    def build_local(self) -> None:
        """Only one home network, without a way out."""
        self._connect(LOCAL)

    def _connect(self, places: Mapping[str, str], others: Iterable[str] = ()) -> None:
        """Make places with these addresses at one switch, and `others` without any link."""
        for place in ("switch", *places, *others):
            run("ip", "netns", "add", self.name(place))
            self._ip(place, "link set lo up")
        self._ip("switch", "link add bridge type bridge mcast_snooping 0")
        self._ip("switch", "link set bridge up")
        for place, address in places.items():
            self._ip("switch", f"link add {place} type veth peer name out netns {self.name(place)}")
            self._ip("switch", f"link set {place} master bridge up")
            self._ip(place, f"addr add {address}/24 dev out")
            self._ip(place, "link set out up")

    def _connect_home(self, home: str, router: str, net: str) -> None:
        """A home network behind a router that lets only answers in."""
        self._ip(router, f"link add in type veth peer name out netns {self.name(home)}")
        self._ip(router, f"addr add {net}.1/24 dev in")
        self._ip(router, "link set in up")
        self._ip(home, f"addr add {net}.2/24 dev out")
        self._ip(home, "link set out up")
        self._ip(home, f"route add default via {net}.1")
        # Outsiders even know the way; what keeps them out is the router.
        self._ip("public", f"route add {net}.0/24 via {PUBLIC[router]}")
        run(*self.inside(router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"))
        for rule in (
            "-P INPUT DROP",
            "-P FORWARD DROP",
            "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
            "-A FORWARD -i in -o out -j ACCEPT",
            "-t nat -A POSTROUTING -o out -j MASQUERADE",
        ):
            self.iptables(router, rule)

    def iptables(self, place: str, rule: str) -> None:
        run(*self.inside(place, "iptables", "-w", *rule.split()))

    def cut_off(self, place: str) -> None:
        """Take a machine's cable out of the switch."""
        self._ip("switch", f"link set {place} down")

    def reconnect(self, place: str) -> None:
        """Put it in again."""
        self._ip("switch", f"link set {place} up")

    def remove(self) -> None:
        for place in (*HOMES, *PUBLIC, *LOCAL, "switch"):
            subprocess.run(["ip", "netns", "del", self.name(place)], capture_output=True, timeout=LIMIT, check=False)

    def _ip(self, place: str, command: str) -> None:
        run("ip", "-n", self.name(place), *command.split())


@contextmanager
def internet() -> Iterator[Internet]:
    """Build it, and take it down whatever happens; NoNamespaces where the system forbids it."""
    check_namespaces("ip", "iptables")
    net = Internet()
    try:
        net.build()
        yield net
    finally:
        net.remove()


@contextmanager
def local_network() -> Iterator[Internet]:
    """The same for one home network with the machines in LOCAL."""
    check_namespaces("ip")
    net = Internet()
    try:
        net.build_local()
        yield net
    finally:
        net.remove()
