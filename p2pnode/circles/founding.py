"""How circles are founded: the signed record of a split, the name and lineage that follow from it, asking for it.

A circle's name gives its lineage. The name of a circle that split off is the hash of its founding record, so whoever
hears the name can ask any member for the record and check it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from blake3 import blake3

from ..compression.weights import Units
from ..discovery.services import Services
from ..merging.deltaset.entry import SetRules
from ..merging.deltaset.set import DeltaSet, weights_hash
from ..merging.deltaset.snapshots import decode_any_place, decode_place
from ..runtime.calls import JobCalls
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import Identity, PeerId, signed_by
from ..wire.types import MAX_PLACE_BYTES, Hash, PeerText, Seconds, Signature, decoded
from .members import CurrentCircle
from .messages import CircleIs, GetCircle

MAX_MEMBERS = 64
NAME_CHARS = 40  # 160 bits of a hash, as hex
MOST_ASKED = 3  # members of a circle
ASK_TIMEOUT: Seconds = 5.0
_NAME = re.compile(f"[0-9a-f]{{{NAME_CHARS}}}")


def circle_lineage(genesis: bytes, circle: str) -> bytes:
    """The lineage of a circle, given the run's genesis. The run's first circle has no name and the genesis' lineage."""
    return blake3(b"p2pnode circle 1\0" + msgspec.msgpack.encode((genesis, circle))).digest() if circle else genesis


class CircleFounding(msgspec.Struct, frozen=True, array_like=True):
    """A circle that splits off: from where, with which weights, and who. Signed by the member with the smallest id."""

    place: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)]  # the parent's log position
    weights: Hash  # of the parent at that position
    group: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]  # members of the parent, those that leave among them
    members: Annotated[tuple[PeerText, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    signature: Signature = b""

    @property
    def founder(self) -> PeerId:
        return PeerId(self.members[0])


_decoder = msgspec.msgpack.Decoder(CircleFounding)


def sign_found(identity: Identity, found: CircleFounding) -> CircleFounding:
    """The record with members in order and signed by its founder, who must be the smallest of them."""
    ordered = msgspec.structs.replace(found, members=tuple(sorted(set(found.members))), signature=b"")
    return msgspec.structs.replace(ordered, signature=identity.sign(_content(ordered)))


def circle_name(found: CircleFounding) -> str:
    """The name of the circle that a record founds."""
    return blake3(_content(found)).hexdigest()[:NAME_CHARS]


def is_split_off(name: str) -> bool:
    """Whether a name is the hash of a founding record."""
    return _NAME.fullmatch(name) is not None


def encode_found(found: CircleFounding) -> bytes:
    return msgspec.msgpack.encode(found)


def read_found(data: bytes, name: str) -> CircleFounding:
    """The record that founded circle `name`; ValueError when it is another one, or not valid."""
    found = decoded(_decoder, data, "founding record")
    if list(found.members) != sorted(set(found.members)):
        raise ValueError("the members of a circle are not in order")
    if circle_name(found) != name:
        raise ValueError("the founding record of another circle")
    if not signed_by(found.founder, _content(found), found.signature):
        raise ValueError("a founding record is not signed by the smallest of its members")
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
    """The set a new circle begins with, where its parent's weights were `units` at the position the record names.

    ValueError when these are not the weights the founder signed. Steps are divided like the members, so that schedules
    go on where they were.
    """
    place = decode_place(found.place, parent)
    if weights_hash(units) != found.weights:
        raise ValueError("the founder of a circle signed other weights than its parent had")
    lineage, roots = circle_lineage(genesis, circle_name(found)), found.members if parent.roots else ()
    begun = DeltaSet(replace(parent, lineage=lineage, roots=tuple(roots)), units.astype(np.int32, copy=False))
    begun.steps = place.steps * len(found.members) // max(found.group, len(found.members))
    return begun


def _content(found: CircleFounding) -> bytes:
    return b"p2pnode found 1\0" + msgspec.msgpack.encode(msgspec.structs.replace(found, signature=b""))


class FoundingRecords:
    """Asks members of other circles for their founding record, and answers with that of this node's circle."""

    def __init__(self, services: Services, calls: JobCalls, own: CurrentCircle) -> None:
        self._services = services
        self._calls = calls
        self._own = own

    async def ask(self, name: str, members: list[PeerId]) -> CircleFounding | None:
        """The founding record of a circle, from any of its members. A wrong one costs reputation."""
        for peer in members[:MOST_ASKED]:
            request = GetCircle(name)
            try:
                return read_found((await self._calls.ask(peer, request, CircleIs, ASK_TIMEOUT)).found, name)
            except ValueError as fault:
                self._services.fault(peer, f"circle: {fault}")
            except (PeerError, NetworkDown):
                continue
        return None

    def answer(self, peer: PeerId, request: GetCircle) -> CircleIs:
        """This circle's founding record; PeerRefused when the peer may not ask, or means another circle."""
        self._own.check(request.circle)
        return CircleIs(self._own.found)
