"""Certificates: who holds a shard, since which term, and who keeps its bytes.

A certificate names the holder (`to`) and the keepers, one of whom is the holder. Giver and receiver sign the same
content, each in its own role. Certificates are ranked by (term, hash), and every node believes the highest it has seen.
There are four kinds of the same form: a *claim* (term 0, giver = receiver), a *transfer*, a *renewal* (a transfer to
oneself, which takes back an offer or names new keepers) and a *takeover* by a keeper. A takeover alone has only one
signature, and therefore never licenses dropping bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec
from blake3 import blake3

from ...wire.ids import Signer, signed_by
from ...wire.types import HASH_BYTES, HashOrNothing, PeerText, RunText, ShardText, Signature

MAX_KEEPERS = 8
MAX_TERM = 1 << 62
MAX_LEAP = 1 << 20  # a term further ahead of the known one is refused, so nobody can use up all terms at once
_DOMAIN = b"p2pnode certificate 1\0"
_GIVER, _RECEIVER, _RELEASE = b"giver\0", b"receiver\0", b"release\0"

Term = Annotated[int, msgspec.Meta(ge=0, lt=MAX_TERM)]
Rank = tuple[int, bytes]


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """Who holds and who keeps a shard. Without the receiver's signature a transfer is only an offer."""

    run: RunText
    shard: ShardText
    term: Term
    giver: PeerText
    to: PeerText
    keepers: Annotated[tuple[PeerText, ...], msgspec.Meta(min_length=1, max_length=MAX_KEEPERS)]
    previous: HashOrNothing = b""  # id of the certificate it follows; empty for a claim
    takeover: bool = False
    giver_signature: Signature = b""
    receiver_signature: Signature = b""

    @property
    def licenses_dropping(self) -> bool:
        """Whether its holder may release others from keeping the bytes."""
        return bool(self.receiver_signature)


_encoder = msgspec.msgpack.Encoder()


def is_offer(certificate: Certificate) -> bool:
    """Whether the receiver has not signed yet."""
    return not certificate.receiver_signature and not certificate.takeover


def certificate_id(certificate: Certificate) -> bytes:
    """The hash of what both sign. An offer and the certificate it becomes have the same id."""
    return blake3(_content(certificate)).digest()


def rank(certificate: Certificate | None) -> Rank:
    """Its place in the order that all nodes agree on; None ranks lowest."""
    return (-1, b"") if certificate is None else (certificate.term, certificate_id(certificate))


def claim(me: Signer, run: str, shard: str, keepers: tuple[str, ...]) -> Certificate:
    """The first certificate of a shard: this node has it and knows of no holder."""
    return countersign(me, offer(me, Certificate(run, shard, 0, "", me.peer_id, keepers)))


def offer(me: Signer, unsigned: Certificate) -> Certificate:
    """`unsigned` as an offer signed by `me`, the giver."""
    given = msgspec.structs.replace(unsigned, giver=me.peer_id, giver_signature=b"", receiver_signature=b"")
    return msgspec.structs.replace(given, giver_signature=me.sign(_GIVER + _content(given)))


def countersign(me: Signer, offered: Certificate) -> Certificate:
    """An offer as a full certificate. Only a node that has the bytes on disk may do this."""
    return msgspec.structs.replace(offered, receiver_signature=me.sign(_RECEIVER + _content(offered)))


def following(before: Certificate, term: int, to: str, keepers: tuple[str, ...], takeover: bool = False) -> Certificate:
    """The next certificate of a shard, not yet signed."""
    return Certificate(before.run, before.shard, term, "", to, keepers, certificate_id(before), takeover)


def sign_release(me: Signer, certificate: Certificate, peer: str) -> bytes:
    """The holder's signature under the statement that `peer` need not keep the bytes."""
    return me.sign(_release_content(certificate, peer))


def check_release(certificate: Certificate, peer: str, signature: bytes) -> None:
    """ValueError unless the certificate's holder signed that `peer` may drop the bytes."""
    if not certificate.licenses_dropping:
        raise ValueError("a takeover cannot release anybody")
    if not signed_by(certificate.to, _release_content(certificate, peer), signature):
        raise ValueError("the release is not signed by the holder")


def check_offer(certificate: Certificate, giver: str, me: str) -> None:
    """ValueError with the reason unless it is a valid offer by `giver` to `me`."""
    _check_fields(certificate)
    if certificate.giver != giver or certificate.to != me or giver == me:
        raise ValueError("the offer is not from the sender to this node")
    if certificate.receiver_signature or certificate.takeover or certificate.term == 0:
        raise ValueError("not an offer")
    _check_signature(certificate, certificate.giver, _GIVER, certificate.giver_signature)


def check_certificate(certificate: Certificate) -> None:
    """ValueError with the reason unless it has all signatures it needs and they are valid."""
    _check_fields(certificate)
    _check_signature(certificate, certificate.giver, _GIVER, certificate.giver_signature)
    if not certificate.takeover:
        _check_signature(certificate, certificate.to, _RECEIVER, certificate.receiver_signature)


def _check_fields(certificate: Certificate) -> None:
    own = certificate.giver == certificate.to
    broken = (
        (certificate.to not in certificate.keepers, "the holder is not among the keepers"),
        (len(set(certificate.keepers)) < len(certificate.keepers), "a keeper is named twice"),
        (
            (certificate.term == 0) != (certificate.previous == b""),
            "only a claim has no previous certificate",
        ),
        (len(certificate.previous) not in (0, HASH_BYTES), "the id of the previous certificate has the wrong length"),
        (certificate.term == 0 and (not own or certificate.takeover), "term 0 is for claims"),
        (certificate.takeover and not own, "a takeover must name its own signer as the holder"),
        (certificate.takeover and certificate.receiver_signature != b"", "a takeover has one signature"),
    )
    for wrong, reason in broken:
        if wrong:
            raise ValueError(reason)


def _check_signature(certificate: Certificate, peer: str, role: bytes, signature: bytes) -> None:
    if not signed_by(peer, role + _content(certificate), signature):
        raise ValueError(f"the {role[:-1].decode()}'s signature is invalid")


@lru_cache(maxsize=8192)  # certificates are compared at every step, the same few again and again
def _content(certificate: Certificate) -> bytes:
    return _DOMAIN + _encoder.encode(msgspec.structs.replace(certificate, giver_signature=b"", receiver_signature=b""))


def _release_content(certificate: Certificate, peer: str) -> bytes:
    return _RELEASE + certificate_id(certificate) + peer.encode()


def copies_wanted(peers: int) -> int:
    """How many keepers, the holder included, a certificate should name in a swarm of `peers` nodes."""
    return 1 if peers < 3 else 2 if peers < 8 else 3
