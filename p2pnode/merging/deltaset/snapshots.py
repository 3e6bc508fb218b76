"""Snapshots of a delta set: A at a position of the log, and a set that goes on from there. Pure.

A position is heads, tips, exclusions and steps. It is small, and every member that keeps the entries after it can
compute what A was there. So a snapshot can be fetched from several members at once, and confirmed by members that have
gone on since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np

from ...compression.weights import BLOCK, MAX_SIZE, Units, blocks
from ...wire.ids import PeerId
from ...wire.types import HASH_BYTES, Count, Hash, decoded
from ..snapshots.outline import Snapshot
from . import checksum
from .entry import Chain, Entry, ModelText, SetRules, decode_entry, delta_of, encode_entry
from .heads import Span, decode_heads, encode_heads, missing
from .log import digest_of
from .set import DeltaSet
from .vetoes import check_veto, decode_vetoes, encode_vetoes

_MAX_HEADS_BYTES = 1 << 18
KEPT_LEAST_BYTES = 1 << 17
KEPT_SHARE = 0.125  # of the weights' own bytes


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position of the log, at which A has one value for everybody."""

    lineage: Hash
    model: ModelText
    layout: Annotated[str, msgspec.Meta(max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
    heads: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    tips: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]  # one hash for each head, in their order
    exclusions: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    steps: Count
    vetoes: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)] = b""

    def digest(self) -> bytes:
        """The same digest as `EntrySet.digest` at this position."""
        return digest_of(self.read_heads(), self.read_tips(), decode_heads(self.exclusions), self.vetoes)

    def read_heads(self) -> dict[Chain, int]:
        return decode_heads(self.heads)

    def read_tips(self) -> dict[Chain, bytes]:
        chains = sorted(self.read_heads())
        return {chain: self.tips[at * HASH_BYTES : (at + 1) * HASH_BYTES] for at, chain in enumerate(chains)}


_decoder = msgspec.msgpack.Decoder(LogPosition)
_kept_decoder = msgspec.msgpack.Decoder(list[list[bytes]])


def encode_place(place: LogPosition) -> bytes:
    return msgspec.msgpack.encode(place)


def decode_place(data: bytes, rules: SetRules) -> LogPosition:
    """The position in `data`, of this lineage; ValueError for anything else."""
    place = decoded(_decoder, data, "place")
    reason = check_place(place, rules)
    if reason:
        raise ValueError(f"snapshot refused: {reason}")
    return place


def decode_any_place(data: bytes, rules: SetRules) -> LogPosition:
    """The position in `data`, of any lineage of this model; ValueError for anything else."""
    place = decoded(_decoder, data, "place")
    reason = check_place(place, replace(rules, lineage=place.lineage))
    if reason:
        raise ValueError(f"snapshot refused: {reason}")
    return place


def check_place(place: LogPosition, rules: SetRules) -> str:
    """The reason why a position is not one of this lineage, or ""."""
    if place.lineage != rules.lineage or place.model != rules.model:
        return "another lineage or model"
    if place.size != rules.size or place.layout != rules.layout_hash:
        return "another layout"
    try:
        heads, exclusions = place.read_heads(), decode_heads(place.exclusions)
        vetoes = decode_vetoes(place.vetoes)
    except ValueError as error:
        return f"heads: {error}"
    if len(place.tips) != len(heads) * HASH_BYTES:
        return "not one tip for each head"
    if any(heads.get(chain, 0) >= seq for chain, seq in exclusions.items()):
        return "counts entries that it excludes"
    return next(filter(None, (check_veto(veto, rules) for veto in vetoes)), "")


# ---- giving ----


def log_position(deltas: DeltaSet) -> LogPosition:
    """The current position of a set."""
    return _place(deltas, deltas.heads, deltas.log.tips, deltas.steps)


def passed(deltas: DeltaSet, place: LogPosition) -> tuple[LogPosition, list[Entry]] | None:
    """An earlier position as this set knows it, and the entries since; None when this set does not know it.

    It does not when it lacks entries of that position, no longer keeps all entries since, or has other exclusions.
    """
    then, dropped = place.read_heads(), deltas.log.dropped()
    other = encode_heads(deltas.log.exclusions) != place.exclusions or encode_vetoes(deltas.log.vetoes) != place.vetoes
    if other or not then.keys() <= deltas.heads.keys():
        return None
    later: list[Entry] = []
    tips = {}
    for chain, head in deltas.heads.items():
        seq = then.get(chain, 0)
        if not dropped.get(chain, 0) <= seq <= head:
            return None
        since = deltas.log.entries(Span(chain, seq + 1, head))
        later += since
        if seq:
            tips[chain] = since[0].previous if since else deltas.log.tips[chain]
    if tips != place.read_tips():
        return None
    return _place(deltas, then, tips, deltas.steps - sum(entry.steps for entry in later)), later


def take_off(part: Units, first: int, later: Iterable[Entry], rules: SetRules) -> None:
    """Subtract some later entries from the part of A that begins at coordinate `first`."""
    for entry in later:
        delta = delta_of(entry, rules)
        here = slice(*np.searchsorted(delta.indices, (first, first + len(part))))
        part[delta.indices[here] - np.uint32(first)] -= delta.values[here]


def encode_kept(chains: Iterable[list[Entry]], rules: SetRules) -> bytes:
    """The latest entries of each chain, within a bound: a newcomer can serve them, or remove them after a fork."""
    chains = list(chains)
    max_bytes = max(KEPT_LEAST_BYTES, int(KEPT_SHARE * 4 * rules.size)) // max(1, len(chains))
    return msgspec.msgpack.encode([_latest(entries, max_bytes) for entries in chains])


def _latest(entries: list[Entry], max_bytes: int) -> list[bytes]:
    latest: list[bytes] = []
    for entry in reversed(entries):
        data = encode_entry(entry)
        max_bytes -= len(data)
        if max_bytes < 0 and latest:  # one at least: the next entry is judged by it
            break
        latest.insert(0, data)
    return latest


def _place(deltas: DeltaSet, heads: dict[Chain, int], tips: dict[Chain, bytes], steps: int) -> LogPosition:
    rules = deltas.rules
    ordered = b"".join(tips[chain] for chain in sorted(tips))
    exclusions = encode_heads(deltas.log.exclusions)
    return LogPosition(
        rules.lineage,
        rules.model,
        rules.layout_hash,
        rules.size,
        encode_heads(heads),
        ordered,
        exclusions,
        steps,
        encode_vetoes(deltas.log.vetoes),
    )


# ---- taking ----


class Unsuited(ValueError):
    """A valid snapshot that this node cannot use; the giver is not at fault."""


def take_over(
    place: LogPosition, units: Units, rules: SetRules, before: DeltaSet | None = None, kept: bytes = b""
) -> DeltaSet:
    """A set that goes on from a position where A was `units`.

    With a set from `before`, its entries after the position are added again (our own among them), those just before it
    are kept to be served, and its proofs of forks stay. Of `kept` (`encode_kept`) only entries that lead up to the
    position count. ValueError when the position is not valid, Unsuited when it counts entries excluded here.
    """
    reason = check_place(place, rules)
    if reason:
        raise ValueError(f"snapshot refused: {reason}")
    heads = place.read_heads()
    excluded = before.log.exclusions if before is not None else {}
    if any(heads.get(chain, 0) >= seq for chain, seq in excluded.items()):
        raise Unsuited("snapshot refused: it counts entries that are excluded here after a fork")
    after = DeltaSet(rules, units)
    after.steps = place.steps
    after.log.start_at(heads, place.read_tips(), decode_heads(place.exclusions), decode_vetoes(place.vetoes))
    known = [before.log.entries(Span(chain, 1, head)) for chain, head in heads.items()] if before is not None else []
    for entries in (*known, *_read_kept(kept)):
        after.log.keep(entries)
    if before is not None:
        for entry in before.log:
            after.add(entry)
        for proof in before.log.proofs.values():
            after.add_proof(proof)
        for veto in before.log.vetoes:
            after.add_veto(veto)
    return after


def _read_kept(kept: bytes) -> list[list[Entry]]:
    if not kept:
        return []
    chains = decoded(_kept_decoder, kept, "entries of a snapshot")
    return [[decode_entry(data) for data in chain] for chain in chains]


class SnapshotReader:
    """Reads A at the current position and at earlier ones, block by block, so that the lock is never held for long."""

    def __init__(self, now: Callable[[], DeltaSet], lock: AbstractContextManager[object]) -> None:
        self._now = now
        self._lock = lock

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """The snapshot here or at an earlier position; None when that is not known, ValueError when it is not valid."""
        rules = self._now().rules
        wanted = decode_place(at, rules) if at else None
        with self._lock:
            deltas = self._now()
            found = (log_position(deltas), []) if wanted is None else passed(deltas, wanted)
            spans = missing({}, deltas.heads) if wanted is None else []
            kept = [deltas.log.entries(Span(*span)) for span in spans]
        if found is None:
            return None
        place, units = found[0], np.empty(rules.size, "<i4")
        try:
            for _ in self._units_at(place, units):
                pass
        except LookupError:
            return None
        return Snapshot(encode_place(place), units.data.cast("B"), encode_kept(kept, rules))

    def checksums(self) -> tuple[checksum.Checksum, checksum.Checksum] | None:
        """The checksums of A's entries and of A in memory; None when A changed too fast to compare."""
        with self._lock:
            deltas = self._now()
            place, expected, key = log_position(deltas), deltas.checksum, deltas.checksum_key
        found = 0
        try:
            for block, part in self._units_at(place, np.empty(BLOCK, np.int32)):
                found = checksum.added(found, checksum.of_weights(part, key, block.start))
        except LookupError:
            return None
        return expected, found

    def _units_at(self, place: LogPosition, into: Units) -> Iterator[tuple[slice, Units]]:
        """A at a position, block by block, written into `into`, at its beginning if it is only one block long.

        LookupError when entries since are no longer kept.
        """
        for block in blocks(place.size):
            with self._lock:
                deltas = self._now()
                known = passed(deltas, place)
                part = into[block] if len(into) == place.size else into[: len(deltas.units[block])]
                part[:] = deltas.units[block]
            if known is None:
                raise LookupError("entries since are no longer kept")
            take_off(part, block.start, known[1], deltas.rules)
            yield block, part


def units_of(snapshot: Snapshot, rules: SetRules) -> Units:
    """The weights in a snapshot, without a copy; ValueError when it is of another size."""
    if len(snapshot.content) != 4 * rules.size:
        raise ValueError(f"a snapshot of {len(snapshot.content)} bytes for {rules.size} coordinates")
    return np.frombuffer(snapshot.content, "<i4").astype(np.int32, copy=False)


def adopted(snapshot: Snapshot, before: DeltaSet, me: PeerId) -> DeltaSet:
    """The set that goes on from a snapshot; ValueError when it does not fit.

    Unsuited when entries of our own would no longer count: our log must not have other entries in their place.
    """
    rules = before.rules
    place = decode_place(snapshot.place, rules)
    after = take_over(place, units_of(snapshot, rules), rules, before, snapshot.kept)
    if any(span.chain.peer == me for span in missing(after.heads, before.heads)):
        raise Unsuited("snapshot refused: entries of our own are missing in it that we no longer keep")
    return after


def first_free_incarnation(deltas: DeltaSet, me: PeerId) -> int:
    """The incarnation for a new log of `me`, whose older logs may go on beyond what is known here."""
    return max([0, *(chain.incarnation + 1 for chain in deltas.heads if chain.peer == me)])
