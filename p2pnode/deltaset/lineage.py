"""Where a delta set comes from: the run's genesis, or a circle that split off. Its hash names the lineage."""

from __future__ import annotations

from typing import Annotated

import msgspec
from blake3 import blake3

from ..ids import SIGNATURE_BYTES, Identity, signed_by
from .entry import MARK_BYTES, Hash, ModelText, PeerText

MAX_MEMBERS = 64


class Genesis(msgspec.Struct, frozen=True, array_like=True):
    """The first weights of a model in a run."""

    run: Annotated[str, msgspec.Meta(max_length=64)]
    model: ModelText
    layout: Annotated[str, msgspec.Meta(max_length=64)]
    weights: Hash


class Found(msgspec.Struct, frozen=True, array_like=True):
    """A circle that splits off: from where, with which weights, and who. Signed by the smallest of its peer ids."""

    parent: Hash
    model: ModelText
    digest: Annotated[bytes, msgspec.Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]  # of the parent's set
    weights: Hash
    members: Annotated[tuple[PeerText, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    signature: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)] = b""


def lineage_of(origin: Genesis | Found) -> bytes:
    """The 32 bytes a lineage is known by."""
    return blake3(_content(origin)).digest()


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


def _content(origin: Genesis | Found) -> bytes:
    if isinstance(origin, Found):
        return b"p2pnode found 1\0" + msgspec.msgpack.encode(msgspec.structs.replace(origin, signature=b""))
    return b"p2pnode genesis 1\0" + msgspec.msgpack.encode(origin)
