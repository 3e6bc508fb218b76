"""Where a delta set comes from: the run's genesis, a circle declared in it, or one that split off. A hash names it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from blake3 import blake3

from ..ids import SIGNATURE_BYTES, Identity, signed_by
from .entry import MARK_BYTES, Hash, ModelText, PeerText

MAX_MEMBERS = 64


def circle_lineage(genesis: bytes, circle: str) -> bytes:
    """The lineage of a declared circle: all begin at the run's genesis, and each goes its own way from there.

    Without a name the circle is the whole run, and its lineage the genesis itself.
    """
    return blake3(b"p2pnode circle 1\0" + msgspec.msgpack.encode((genesis, circle))).digest() if circle else genesis


class Found(msgspec.Struct, frozen=True, array_like=True):
    """A circle that splits off: from where, with which weights, and who. Signed by the smallest of its peer ids."""

    parent: Hash
    model: ModelText
    digest: Annotated[bytes, msgspec.Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]  # of the parent's set
    weights: Hash
    members: Annotated[tuple[PeerText, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    signature: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)] = b""


def lineage_of(found: Found) -> bytes:
    """The 32 bytes the new circle's lineage is known by."""
    return blake3(_content(found)).digest()


def sign_found(identity: Identity, found: Found) -> Found:
    """A split as its founder's word; the founder must be the smallest of the members."""
    ordered = msgspec.structs.replace(found, members=tuple(sorted(set(found.members))), signature=b"")
    return msgspec.structs.replace(ordered, signature=identity.sign(_content(ordered)))


def check_found(found: Found) -> str:
    """Why a split does not hold, or ""."""
    if list(found.members) != sorted(set(found.members)):
        return "members are not in order"
    if not signed_by(found.members[0], _content(found), found.signature):
        return "not signed by the smallest of its members"
    return ""


def _content(found: Found) -> bytes:
    return b"p2pnode found 1\0" + msgspec.msgpack.encode(msgspec.structs.replace(found, signature=b""))
