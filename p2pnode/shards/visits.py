"""The visit history of a shard: which models have trained on it, and their confidence before and after.

It travels with the shard. Every visit is signed by its visitor and names the hash of the visit before, so nobody can
change, remove or reorder the visits of others. Old visits are summarised, and whoever does that signs the summary.
Copies of a shard travel separately, so two histories may both be true: they are compared, never merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from blake3 import blake3

from ..wire.ids import Identity, signed_by
from ..wire.types import Count, Hash, PeerText, ShardText, Signature, decoded

MAX_VISITS = 16
KEPT_WHEN_FULL = 12  # the others are summarised together, so that most visits do not change the summary
MAX_MODELS = 16
MAX_BYTES = 16_384
CLOCK_SLACK = 120.0  # seconds by which the swarm times of honest peers may differ
_VISIT, _SUMMARY = b"p2pnode visit 1\0", b"p2pnode visits 1\0"

ModelText = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]


class Visit(msgspec.Struct, frozen=True, array_like=True):
    """One visit: a model trained on the shard. `number` counts from 0 along the chain."""

    number: Count
    previous: Hash
    peer: PeerText
    model: ModelText  # different models have different names; a peer's own weights are named after it
    round: Count
    before: Share  # mean confidence before the model trained on the shard in this visit
    after: Share
    time: Seconds  # swarm time
    signature: Signature = b""


class EarlierVisits(msgspec.Struct, frozen=True, array_like=True):
    """The summarised visits of one model."""

    model: ModelText
    visits: Count
    before: Share  # of its last visit
    after: Share
    time: Seconds


class VisitSummary(msgspec.Struct, frozen=True, array_like=True):
    """What is left of the oldest `visits` visits: one line for each of the latest models."""

    visits: Count
    link: Hash  # id of the last visit that was summarised; the next visit names it
    models: Annotated[tuple[EarlierVisits, ...], msgspec.Meta(max_length=MAX_MODELS)]
    peer: PeerText
    signature: Signature = b""


class VisitHistory(msgspec.Struct, frozen=True, array_like=True):
    """All known visits of a shard, oldest first."""

    shard: ShardText
    visits: Annotated[tuple[Visit, ...], msgspec.Meta(max_length=MAX_VISITS)] = ()
    summary: VisitSummary | None = None


_decoder = msgspec.msgpack.Decoder(VisitHistory)
_encoder = msgspec.msgpack.Encoder()


def encode_history(history: VisitHistory) -> bytes:
    return _encoder.encode(history)


def decode_history(data: bytes) -> VisitHistory:
    """The history in `data`; ValueError when its types or bounds are wrong. `check_history` checks the rest."""
    return decoded(_decoder, data, "visit history", MAX_BYTES)


def with_visit(
    me: Identity, history: VisitHistory, model: str, round: int, before: float, after: float, time: float
) -> VisitHistory:
    """The history with one more visit, by `me`."""
    number, previous = length(history), _end(history)
    plain = Visit(number, previous, me.peer_id, model, round, _share(before), _share(after), time)
    signed = msgspec.structs.replace(plain, signature=me.sign(_visit_content(history.shard, plain)))
    grown = msgspec.structs.replace(history, visits=(*history.visits, signed))
    return grown if len(grown.visits) < MAX_VISITS else _summarised(me, grown)


def length(history: VisitHistory) -> int:
    """The number of visits, including those that were summarised."""
    return (history.summary.visits if history.summary else 0) + len(history.visits)


def check_history(history: VisitHistory, shard: str, now: float) -> None:
    """ValueError with the reason unless all visits are signed, in order and not from the future."""
    if history.shard != shard:
        raise ValueError("the visit history is that of another shard")
    _check_summary(history)
    number, previous, latest = 0, _beginning(history.shard), 0.0
    if history.summary is not None:
        number, previous = history.summary.visits, history.summary.link
        latest = max(past.time for past in history.summary.models)
    for visit in history.visits:
        if visit.number != number or visit.previous != previous:
            raise ValueError(f"visit {number} is missing or out of order")
        if not signed_by(visit.peer, _visit_content(shard, visit), visit.signature):
            raise ValueError(f"visit {number} is not signed by its visitor")
        if visit.time < latest - CLOCK_SLACK:
            raise ValueError(f"visit {number} is older than the one before it")
        number, previous, latest = number + 1, visit_id(shard, visit), max(latest, visit.time)
    if latest > now + CLOCK_SLACK:
        raise ValueError(f"a visit is {latest - now:.0f} s from the future")


def check_nothing_left_out(history: VisitHistory, known: Visit) -> None:
    """ValueError when a history lacks a visit that it must have, such as its sender's own."""
    beginning = history.summary.visits if history.summary else 0
    if known.number >= beginning and known not in history.visits:
        raise ValueError(f"visit {known.number}, which {known.peer[-8:]} signed, was left out")


def latest_by_model(history: VisitHistory) -> dict[str, EarlierVisits]:
    """The last known visit of every model."""
    found = {past.model: past for past in (history.summary.models if history.summary else ())}
    return {past.model: past for past in _joined(found, history.visits)}


def visit_id(shard: str, visit: Visit) -> bytes:
    return blake3(_visit_content(shard, visit)).digest()


def _summarised(me: Identity, history: VisitHistory) -> VisitHistory:
    """The history with its oldest visits summarised, one line for each model, signed by `me`."""
    old, rest = history.visits[:-KEPT_WHEN_FULL], history.visits[-KEPT_WHEN_FULL:]
    before = {past.model: past for past in (history.summary.models if history.summary else ())}
    lines = tuple(_joined(before, old))[-MAX_MODELS:]
    plain = VisitSummary(old[-1].number + 1, visit_id(history.shard, old[-1]), lines, me.peer_id)
    signed = msgspec.structs.replace(plain, signature=me.sign(_summary_content(history.shard, plain)))
    return VisitHistory(history.shard, rest, signed)


def _joined(lines: dict[str, EarlierVisits], visits: Iterable[Visit]) -> list[EarlierVisits]:
    """Summary lines with some more visits, in the order of each model's last visit."""
    found = dict(lines)
    for visit in visits:
        count = found[visit.model].visits if visit.model in found else 0
        found[visit.model] = EarlierVisits(visit.model, count + 1, visit.before, visit.after, visit.time)
    return sorted(found.values(), key=lambda past: (past.time, past.model))


def _check_summary(history: VisitHistory) -> None:
    summary = history.summary
    if summary is None:
        return
    if not signed_by(summary.peer, _summary_content(history.shard, summary), summary.signature):
        raise ValueError("the summary of old visits is not signed by its author")
    if not summary.models or sum(past.visits for past in summary.models) > summary.visits:
        raise ValueError("the summary of old visits does not add up")
    if not history.visits:
        raise ValueError("the latest visits are missing")


def _end(history: VisitHistory) -> bytes:
    if history.visits:
        return visit_id(history.shard, history.visits[-1])
    return history.summary.link if history.summary else _beginning(history.shard)


def _beginning(shard: str) -> bytes:
    return blake3(_VISIT + shard.encode()).digest()


def _visit_content(shard: str, visit: Visit) -> bytes:
    return _VISIT + shard.encode() + _encoder.encode(msgspec.structs.replace(visit, signature=b""))


def _summary_content(shard: str, summary: VisitSummary) -> bytes:
    return _SUMMARY + shard.encode() + _encoder.encode(msgspec.structs.replace(summary, signature=b""))


def _share(confidence: float) -> float:
    """A confidence limited to 0..1; NaN becomes 0."""
    return min(1.0, max(0.0, confidence)) if confidence == confidence else 0.0
