"""What a node knows about one shard, and what may happen to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from ...wire.types import decoded
from .certificate import MAX_TERM, Certificate, is_offer
from .messages import AnyMessage


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What is on disk besides the bytes."""

    highest: Certificate | None = None
    next_term: Annotated[int, msgspec.Meta(ge=0, le=MAX_TERM)] = 0  # every term below was used or seen
    kept: bool = False  # the bytes may not go without a release; bytes that are not kept are cache


NOTHING = Record()


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard on one node. The first two are on disk; the others are forgotten in a crash, and that does no harm."""

    record: Record = NOTHING
    have: bool = False  # the bytes are on disk, whole and of the right hash
    offer: Certificate | None = None  # sent, not answered yet
    wanted: Certificate | None = None  # the bytes are being fetched for it: an offer to us, or one that names us keeper
    confirmed: frozenset[str] = frozenset()  # keepers that said Kept about our certificate


# ---- writes, in this order, each durable before the next and before any message ----


class PutBytes(NamedTuple):
    """Make the fetched bytes, whose hash was checked, a durable file."""


class PutRecord(NamedTuple):
    record: Record


class DeleteBytes(NamedTuple):
    """Remove the file; only ever of bytes that are not kept."""


Write = PutBytes | PutRecord | DeleteBytes


# ---- events ----


class ClaimShard(NamedTuple):
    """Nobody is known to hold the shard whose bytes are here: it is ours."""

    run: str
    shard: str
    keepers: tuple[str, ...]


class Give(NamedTuple):
    """Offer the shard to a peer."""

    to: str
    keepers: tuple[str, ...]


class Renew(NamedTuple):
    """Take back an offer, or name other keepers."""

    keepers: tuple[str, ...]


class TakeOver(NamedTuple):
    """The holder has been silent for long."""

    keepers: tuple[str, ...]


class Received(NamedTuple):
    """A message that passed `messages.check`."""

    sender: str
    message: AnyMessage


class BytesArrived(NamedTuple):
    """The bytes are here, from a peer or made from the task's own data, and have the hash that is the shard's name."""


class NotFetched(NamedTuple):
    """Nobody gave the wanted bytes, or this node does not want them (no room, a stranger's offer)."""

    why: str


class Lost(NamedTuple):
    """The file is gone or damaged."""


class Drop(NamedTuple):
    """Room is needed; nothing happens to bytes that are kept."""


class Meet(NamedTuple):
    """A peer is there: tell it again what it should know."""

    peer: str


HandoffEvent = ClaimShard | Give | Renew | TakeOver | Received | BytesArrived | NotFetched | Lost | Drop | Meet


class Step(NamedTuple):
    """What an event leads to: the state after, writes to do first, messages to send then."""

    state: ShardState
    writes: tuple[Write, ...] = ()
    messages: tuple[tuple[str, AnyMessage], ...] = ()


# ---- questions ----


def holder(state: ShardState) -> str:
    """Who holds the shard as far as is known; "" when nobody is known."""
    return state.record.highest.to if state.record.highest else ""


def is_mine(state: ShardState, me: str) -> bool:
    return holder(state) == me


def is_sole_keeper(state: ShardState, me: str) -> bool:
    """Whether the shard may be nowhere else: this node must hand it over before it leaves."""
    return state.record.kept and state.have and is_mine(state, me) and not state.confirmed


def unconfirmed(state: ShardState, me: str) -> tuple[str, ...]:
    """Keepers the holder has not heard from since it began to ask."""
    if state.record.highest is None:
        return ()
    return tuple(peer for peer in state.record.highest.keepers if peer != me and peer not in state.confirmed)


def sources(state: ShardState, me: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Whom to fetch the wanted bytes from, likeliest first; empty when none are wanted.

    `others` come last: an earlier keeper whom nobody has released yet may be the only one left, and no longer named.
    """
    if state.wanted is None or state.have:
        return ()
    known = state.record.highest.keepers if state.record.highest else ()
    everyone = (state.wanted.giver, *state.wanted.keepers, *known, *others)
    return tuple(dict.fromkeys(peer for peer in everyone if peer != me))


def may_have(state: ShardState, peer: str, shown: Certificate) -> bool:
    """Whether a peer may have the bytes: it is named, or shows an offer to it by whom we know as the holder.

    `shown` has passed the checks of its signatures.
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
    """A record from disk; ValueError when it is none."""
    return decoded(_decoder, data, "handoff record")


def restarted(me: str, record: Record, have: bool) -> ShardState:
    """The state after a crash: what is on disk, and nothing else. A keeper whose bytes are gone wants them again."""
    highest = record.highest
    owed = record.kept and not have and highest is not None and me in highest.keepers
    return ShardState(record, have, wanted=highest if owed else None)
