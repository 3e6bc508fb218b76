"""A lease says who alone does a piece of work, since which term. The term is the fencing token.

Leases of one name are ranked by (term, hash), and every node believes the highest it has seen. A new lease has the next
term: the owner hands over to another member, or a member takes over from an owner that is silent. Silence cannot be
proved, so anybody can take over; what a deposed owner does afterwards does not count, because whatever it signs carries
the lower term.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec
from blake3 import blake3

from ...wire.ids import Signer as Signer
from ...wire.ids import signed_by
from ...wire.types import HASH_BYTES, Hash, HashOrNothing, PeerText, Signature

MAX_TERM = 1 << 62
MAX_LEAP = 1 << 20  # a term further ahead of the known one is refused, so nobody can use up all terms at once
_DOMAIN = b"p2pnode lease 1\0"
_OWNER, _GIVER, _RENEWAL = b"owner\0", b"giver\0", b"renewal\0"

Term = Annotated[int, msgspec.Meta(ge=0, lt=MAX_TERM)]
LeaseName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
LeaseRank = tuple[int, bytes]


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """Who owns a piece of work from this term on. Where it was handed over, the owner before signed it too."""

    scope: Annotated[str, msgspec.Meta(max_length=128)]  # the job that the name belongs to
    name: LeaseName
    term: Term
    owner: PeerText
    previous: HashOrNothing = b""  # id of the lease it follows; empty in term 0
    giver: Annotated[str, msgspec.Meta(max_length=64)] = ""  # who handed it over; "": the owner took it
    giver_signature: Signature = b""
    signature: Signature = b""  # of the owner


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """The owner's statement that it still works. Numbers rise; nobody but the owner can make one."""

    lease: Hash
    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    signature: Signature = b""


_encoder = msgspec.msgpack.Encoder()


def lease_id(lease: Lease) -> bytes:
    """The hash of what is signed."""
    return blake3(_content(lease)).digest()


def rank(lease: Lease | None) -> LeaseRank:
    """Its place in the order that all nodes agree on; None ranks lowest."""
    return (-1, b"") if lease is None else (lease.term, lease_id(lease))


def take(me: Signer, scope: str, name: str, before: Lease | None) -> Lease:
    """The lease after `before`, owned by `me`, who asks nobody."""
    term, previous = (0, b"") if before is None else (before.term + 1, lease_id(before))
    return accept(me, Lease(scope, name, term, me.peer_id, previous))


def offer(me: Signer, mine: Lease, to: str) -> Lease:
    """The lease after `mine` for another member, signed by `me`. It holds once that member has accepted it."""
    offered = Lease(mine.scope, mine.name, mine.term + 1, to, lease_id(mine), me.peer_id)
    return msgspec.structs.replace(offered, giver_signature=me.sign(_GIVER + _content(offered)))


def accept(me: Signer, offered: Lease) -> Lease:
    """An offered lease with the new owner's signature, which makes it hold."""
    return msgspec.structs.replace(offered, signature=me.sign(_OWNER + _content(offered)))


def renew(me: Signer, mine: Lease, number: int) -> Renewal:
    """The statement that `me` still works, with this number."""
    id = lease_id(mine)
    return Renewal(id, number, me.sign(_renewal_content(id, number)))


def check_lease(lease: Lease, scope: str, name: str) -> None:
    """ValueError with the reason unless it holds for this work: fields fit each other and all signatures are valid."""
    _check_fields(lease, scope, name)
    if not signed_by(lease.owner, _OWNER + _content(lease), lease.signature):
        raise ValueError("the lease is not signed by its owner")
    _check_giver(lease)


def check_offer(lease: Lease, scope: str, name: str, giver: str, me: str) -> None:
    """ValueError with the reason unless it is a valid offer of this work by `giver` to `me`."""
    _check_fields(lease, scope, name)
    if lease.giver != giver or lease.owner != me or not giver:
        raise ValueError("the offer is not from the sender to this node")
    _check_giver(lease)


def check_renewal(renewal: Renewal, lease: Lease) -> None:
    """ValueError unless the lease's owner signed it."""
    if renewal.lease != lease_id(lease):
        raise ValueError("the renewal is of another lease")
    if not signed_by(lease.owner, _renewal_content(renewal.lease, renewal.number), renewal.signature):
        raise ValueError("the renewal is not signed by the owner")


def _check_fields(lease: Lease, scope: str, name: str) -> None:
    broken = (
        ((lease.scope, lease.name) != (scope, name), "the lease is of another piece of work"),
        ((lease.term == 0) != (lease.previous == b""), "only the first lease follows no other"),
        (len(lease.previous) not in (0, HASH_BYTES), "the id of the lease before has the wrong length"),
        (lease.giver == lease.owner, "nobody hands over to itself"),
    )
    for wrong, reason in broken:
        if wrong:
            raise ValueError(reason)


def _check_giver(lease: Lease) -> None:
    if lease.giver and not signed_by(lease.giver, _GIVER + _content(lease), lease.giver_signature):
        raise ValueError("the lease is not signed by who handed it over")


@lru_cache(maxsize=1024)
def _content(lease: Lease) -> bytes:
    return _DOMAIN + _encoder.encode((lease.scope, lease.name, lease.term, lease.owner, lease.previous, lease.giver))


def _renewal_content(lease: bytes, number: int) -> bytes:
    return _RENEWAL + _DOMAIN + lease + number.to_bytes(8, "big")
