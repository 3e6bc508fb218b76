"""What a node knows about one shard, what may happen to it, and the effects that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from ...wire.types import decoded
from .certificate import MAX_TERM, Certificate, is_offer
from .messages import AnyMessage


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What is on disk about a shard besides its bytes."""

    highest: Certificate | None = None
    next_term: Annotated[int, msgspec.Meta(ge=0, le=MAX_TERM)] = 0  # every lower term was used or seen
    kept: bool = False  # the bytes may not be deleted without a release; bytes that are not kept are cache


NOTHING = Record()


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard on one node. `record` and `have` are on disk; a crash forgets the rest, which does no harm."""

    record: Record = NOTHING
    have: bool = False  # the bytes are on disk, whole and of the right hash
    offer: Certificate | None = None  # sent by this node, not answered yet
    wanted: Certificate | None = None  # the bytes are fetched for it: an offer to us, or one that names us keeper
    confirmed: frozenset[str] = frozenset()  # keepers that answered our certificate with Kept


# ---- writes, in this order, each durable before the next and before any message ----


class PutBytes(NamedTuple):
    """Write the fetched bytes, whose hash was checked, to a durable file."""


class PutRecord(NamedTuple):
    """Write the record to a durable file."""

    record: Record


class DeleteBytes(NamedTuple):
    """Delete the file. Only follows from Drop, and never for bytes that are kept."""


Write = PutBytes | PutRecord | DeleteBytes


# ---- events ----


class ClaimShard(NamedTuple):
    """This node has the bytes and knows of no holder, so it becomes the holder."""

    run: str
    shard: str
    keepers: tuple[str, ...]


class Give(NamedTuple):
    """Offer to hand the shard over to a peer."""

    to: str
    keepers: tuple[str, ...]


class Renew(NamedTuple):
    """The holder takes back an offer, or names other keepers."""

    keepers: tuple[str, ...]


class TakeOver(NamedTuple):
    """A keeper becomes the holder, because the holder has been silent for long."""

    keepers: tuple[str, ...]


class Received(NamedTuple):
    """A message that passed `messages.check_handoff`."""

    sender: str
    message: AnyMessage


class BytesArrived(NamedTuple):
    """A peer sent the bytes, and they have the hash that is the shard's id."""


class NotFetched(NamedTuple):
    """The wanted bytes could not be fetched or stored."""

    reason: str


class Lost(NamedTuple):
    """The file is missing or damaged."""


class Drop(NamedTuple):
    """Delete the bytes, because room is needed. Bytes that are kept stay."""


class Meet(NamedTuple):
    """A peer is in contact: repeat what it should know."""

    peer: str


HandoffEvent = ClaimShard | Give | Renew | TakeOver | Received | BytesArrived | NotFetched | Lost | Drop | Meet


class HandoffStep(NamedTuple):
    """What an event leads to: the new state, writes to do first, then messages to send and whether to fetch bytes."""

    state: ShardState
    writes: tuple[Write, ...] = ()
    messages: tuple[tuple[str, AnyMessage], ...] = ()
    fetch: bool = False  # the bytes are wanted and not here


# ---- questions ----


def holder(state: ShardState) -> str:
    """The holder as far as this node knows; "" when it knows of none."""
    return state.record.highest.to if state.record.highest else ""


def is_mine(state: ShardState, me: str) -> bool:
    """Whether this node is the holder, as far as it knows."""
    return holder(state) == me


def is_sole_keeper(state: ShardState, me: str) -> bool:
    """Whether the shard may exist only here, so that this node should hand it over before it leaves."""
    return state.record.kept and state.have and is_mine(state, me) and not state.confirmed


def unconfirmed(state: ShardState, me: str) -> tuple[str, ...]:
    """Keepers that have not confirmed the highest certificate to its holder."""
    if state.record.highest is None:
        return ()
    return tuple(peer for peer in state.record.highest.keepers if peer != me and peer not in state.confirmed)


def sources(state: ShardState, me: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Peers to fetch the wanted bytes from, likeliest first; empty when none are wanted.

    `others` come last: an earlier keeper that was never released may be the only one left, though no longer named.
    """
    if state.wanted is None or state.have:
        return ()
    known = state.record.highest.keepers if state.record.highest else ()
    everyone = (state.wanted.giver, *state.wanted.keepers, *known, *others)
    return tuple(dict.fromkeys(peer for peer in everyone if peer != me))


def may_have(state: ShardState, peer: str, shown: Certificate) -> bool:
    """Whether a peer may have the bytes: it is a keeper, or shows an offer that the holder made to it.

    The signatures of `shown` were checked before.
    """
    highest = state.record.highest
    if highest is None:
        return False
    offered = is_offer(shown) and shown.to == peer and shown.giver == highest.to
    return peer in highest.keepers or offered


_decoder = msgspec.msgpack.Decoder(Record)
_encoder = msgspec.msgpack.Encoder()


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    """The record in `data`; ValueError when it is malformed."""
    return decoded(_decoder, data, "handoff record")


def restarted(me: str, record: Record, have: bool) -> ShardState:
    """The state after a restart, from what is on disk. A keeper whose bytes are gone wants them again."""
    highest = record.highest
    owed = record.kept and not have and highest is not None and me in highest.keepers
    return ShardState(record, have, wanted=highest if owed else None)
