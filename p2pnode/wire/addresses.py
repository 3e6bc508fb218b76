"""Addresses of nodes: libp2p multiaddresses that end in /p2p/PEER, checked with py-multiaddr."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from .errors import UsageError
from .ids import PeerId, public_key

EXAMPLE = "/ip4/203.0.113.7/tcp/31337/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
MAX_ADDRESS_CHARS = 300
Reachability = Literal["auto", "public", "private"]  # whether others can dial a node
PUBLIC, LOCAL, RELAYED, NAMED, LOOPBACK = range(5)  # ranks, the best first; NAMED: by DNS, or another transport


@dataclass(frozen=True)
class Address:
    """Where a peer can be dialled, and which peer must answer there."""

    text: str
    peer: PeerId

    @property
    def transport(self) -> str:
        """The part before /p2p/PEER at its end."""
        return self.text[: -len(f"/p2p/{self.peer}")]

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)  # the peer book and announcements bring the same ones again and again
def parse_address(text: str) -> Address:
    """An address as a user or a peer gives it; UsageError with an example when it is not one."""
    text = text.strip()
    if len(text) > MAX_ADDRESS_CHARS or not text.startswith("/"):
        raise UsageError(f"{text[:80]!r} is not an address; one looks like {EXAMPLE}")
    _parse(text)
    head, separator, peer = text.rpartition("/p2p/")
    if not separator or not head:
        raise UsageError(f"{text!r} lacks the peer id at its end; an address looks like {EXAMPLE}")
    try:
        public_key(peer)
    except ValueError as error:
        raise UsageError(f"{text!r} has a wrong peer id: {error}; copy the address whole") from None
    return Address(text, PeerId(peer))


def parse_listen(text: str) -> str:
    """Where to listen: an address without a peer id, or just a port."""
    text = text.strip()
    if text.isdigit():
        text = f"/ip4/0.0.0.0/tcp/{text}"
    _parse(text)
    if "/p2p/" in text or not ("/tcp/" in text or "/udp/" in text):
        raise UsageError(f"{text!r} is not an address to listen on; one looks like /ip4/0.0.0.0/tcp/31337")
    return text


def _parse(text: str) -> None:
    from multiaddr import Multiaddr  # 30 ms, and only needed where addresses are given

    try:
        Multiaddr(text)
    except Exception as error:  # py-multiaddr raises many kinds, some of them bare
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UsageError(f"{text[:80]!r} is not an address ({reason}); one looks like {EXAMPLE}") from None


def host_and_port(text: str) -> tuple[str, int] | None:
    """The ip and tcp port of a plain address, or None for anything else."""
    parts = text.split("/")
    if len(parts) < 5 or parts[1] not in ("ip4", "ip6") or parts[3] != "tcp" or not parts[4].isdigit():
        return None
    return parts[2], int(parts[4])


def useful(addresses: Iterable[str], most: int) -> tuple[str, ...]:
    """The addresses worth telling others, best first: public, then local network, then relayed.

    Loopback only when there is nothing else: elsewhere it leads to another machine.
    """
    ranked = sorted(set(addresses), key=lambda text: (_rank(text), text))
    beyond = [text for text in ranked if _rank(text) != LOOPBACK]
    return tuple((beyond or ranked)[:most])


def invite_addresses(own: Sequence[Address], others: Sequence[Address] = ()) -> tuple[Address, ...]:
    """The few addresses that an invite carries: a public and a local one of this node, or two local ones.

    Where nobody outside the local network can dial this node, a relay's address and public ones of `others` (the
    bootstrap addresses) are added. Loopback only when there is nothing else.
    """
    public = [address for address in own if _rank(address.text) in (PUBLIC, NAMED)]
    local = sorted((address for address in own if _rank(address.text) == LOCAL), key=_network)
    if public:
        return (*public[:1], *local[:1])
    relayed = [address for address in own if _rank(address.text) == RELAYED]
    public = [address for address in others if _rank(address.text) in (PUBLIC, NAMED)]
    return (*local[:2], *relayed[:1], *public[:2]) or (*own[:1], *others[:1])


def dialled_nearby(own: Iterable[str]) -> tuple[Address, ...]:
    """Returns the addresses of a node that others in its network can dial by IP: local ones first, no loopback."""
    found = []
    for text in own:
        with contextlib.suppress(UsageError):  # the daemon may know protocols that friends cannot read
            address = parse_address(text)
            if _rank(text) in (PUBLIC, LOCAL) and address.transport.count("/") == 4:
                found.append(address)
    return tuple(sorted(found, key=lambda address: (-_rank(address.text), _network(address))))


def _network(address: Address) -> int:
    """The usual home and office networks first: others are often those of containers on the same machine."""
    place = host_and_port(address.text)
    usual = ("192.168.", "10.")
    return next((rank for rank, start in enumerate(usual) if place and place[0].startswith(start)), len(usual))


def _rank(text: str) -> int:
    if "/p2p-circuit" in text:
        return RELAYED
    place = host_and_port(text)
    if place is None:
        return NAMED
    ip = ipaddress.ip_address(place[0])
    if ip.is_loopback:
        return LOOPBACK
    return LOCAL if ip.is_private else PUBLIC
