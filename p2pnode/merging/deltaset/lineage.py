"""Where a delta set comes from: the run's genesis, a circle declared in it, or one that split off.

A circle's name gives its lineage. That of a circle which split off is the hash of the word it was founded by: whoever
hears the name can ask any member for that word and check it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from blake3 import blake3

from ...compression.weights import Units
from ...wire.ids import Identity, PeerId, signed_by
from ...wire.types import MAX_PLACE_BYTES, Hash, PeerText, Signature, decoded
from .accumulate import weights_hash
from .entry import SetRules
from .set import DeltaSet
from .snapshots import decode_any_place, decode_place

MAX_MEMBERS = 64
NAME_CHARS = 40  # 160 bits of a hash, as hex
_NAME = re.compile(f"[0-9a-f]{{{NAME_CHARS}}}")


def circle_lineage(genesis: bytes, circle: str) -> bytes:
    """The lineage of a circle: each goes its own way from the run's genesis, or from where it split off.

    Without a name the circle is the run's first, and its lineage the genesis itself.
    """
    return blake3(b"p2pnode circle 1\0" + msgspec.msgpack.encode((genesis, circle))).digest() if circle else genesis


class CircleFounding(msgspec.Struct, frozen=True, array_like=True):
    """A circle that splits off: from where, with which weights, and who. Signed by the smallest of its peer ids."""

    place: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)]  # where the parent stood (snapshot.Place)
    weights: Hash  # of the parent there
    group: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]  # members of the parent, those that leave among them
    members: Annotated[tuple[PeerText, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    signature: Signature = b""

    @property
    def founder(self) -> PeerId:
        return PeerId(self.members[0])


_decoder = msgspec.msgpack.Decoder(CircleFounding)


def sign_found(identity: Identity, found: CircleFounding) -> CircleFounding:
    """A split as its founder's word; the founder must be the smallest of the members."""
    ordered = msgspec.structs.replace(found, members=tuple(sorted(set(found.members))), signature=b"")
    return msgspec.structs.replace(ordered, signature=identity.sign(_content(ordered)))


def circle_name(found: CircleFounding) -> str:
    """The name the circle goes by."""
    return blake3(_content(found)).hexdigest()[:NAME_CHARS]


def is_split_off(name: str) -> bool:
    """Whether a name is one that a split gives."""
    return _NAME.fullmatch(name) is not None


def encode_found(found: CircleFounding) -> bytes:
    return msgspec.msgpack.encode(found)


def read_found(data: bytes, name: str) -> CircleFounding:
    """The word that founded circle `name`; ValueError when it is not that, or does not hold."""
    found = decoded(_decoder, data, "word of a circle")
    if list(found.members) != sorted(set(found.members)):
        raise ValueError("the members of a circle are not in order")
    if circle_name(found) != name:
        raise ValueError("the word of another circle")
    if not signed_by(found.founder, _content(found), found.signature):
        raise ValueError("a circle's word is not signed by the smallest of its members")
    return found


def splits(found: CircleFounding, rules: SetRules) -> bool:
    """Whether the circle split off from the lineage of these rules."""
    try:
        decode_place(found.place, rules)
    except ValueError:
        return False
    return True


def of_this_model(found: CircleFounding, rules: SetRules) -> bool:
    """Whether the circle split off from some lineage of this model."""
    try:
        decode_any_place(found.place, rules)
    except ValueError:
        return False
    return True


def first_set(found: CircleFounding, genesis: bytes, parent: SetRules, units: Units) -> DeltaSet:
    """The set a circle that split off begins with, where its parent's weights were `units` at the place it names.

    ValueError when they are not those the founder signed. Steps are shared out like the members, so that schedules
    go on where they were.
    """
    place = decode_place(found.place, parent)
    if weights_hash(units) != found.weights:
        raise ValueError("the founder of a circle signed other weights than its parent had")
    begun = DeltaSet(
        replace(parent, lineage=circle_lineage(genesis, circle_name(found))), units.astype(np.int32, copy=False)
    )
    begun.steps = place.steps * len(found.members) // max(found.group, len(found.members))
    return begun


def _content(found: CircleFounding) -> bytes:
    return b"p2pnode found 1\0" + msgspec.msgpack.encode(msgspec.structs.replace(found, signature=b""))
