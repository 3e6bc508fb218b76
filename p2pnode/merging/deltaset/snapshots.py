"""Snapshots: A at a place, and a set that goes on from there.

A place is heads, tips, exclusions and steps: small, and every member that keeps the entries after it can say what A was
there. So a snapshot's weights can be asked of several members at once, and its truth of members that have moved on.
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

_MAX_HEADS_BYTES = 1 << 18
KEPT_LEAST_BYTES = 1 << 17
KEPT_SHARE = 0.125  # of the weights' own bytes


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a set stood."""

    lineage: Hash
    model: ModelText
    layout: Annotated[str, msgspec.Meta(max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
    heads: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    tips: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]  # one hash for each head, in their order
    exclusions: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    steps: Count

    def digest(self) -> bytes:
        """As `EntrySet.digest` says it."""
        return digest_of(self.read_heads(), self.read_tips(), decode_heads(self.exclusions))

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
    """The place in `data`, one of this lineage; ValueError for anything else."""
    place = decoded(_decoder, data, "place")
    why = check_place(place, rules)
    if why:
        raise ValueError(f"snapshot refused: {why}")
    return place


def decode_any_place(data: bytes, rules: SetRules) -> LogPosition:
    """The place in `data`, one of any lineage of this model; ValueError for anything else."""
    place = decoded(_decoder, data, "place")
    why = check_place(place, replace(rules, lineage=place.lineage))
    if why:
        raise ValueError(f"snapshot refused: {why}")
    return place


def check_place(place: LogPosition, rules: SetRules) -> str:
    """Why a place is not one of this lineage, or ""."""
    if place.lineage != rules.lineage or place.model != rules.model:
        return "another lineage or model"
    if place.size != rules.size or place.layout != rules.layout_hash:
        return "another layout"
    try:
        heads, exclusions = place.read_heads(), decode_heads(place.exclusions)
    except ValueError as error:
        return f"heads: {error}"
    if len(place.tips) != len(heads) * HASH_BYTES:
        return "not one tip for each head"
    if any(heads.get(chain, 0) >= seq for chain, seq in exclusions.items()):
        return "counts entries that it leaves out"
    return ""


# ---- giving ----


def log_position(deltas: DeltaSet) -> LogPosition:
    """Where a set stands now."""
    return _place(deltas, deltas.heads, deltas.log.tips, deltas.steps)


def passed(deltas: DeltaSet, place: LogPosition) -> tuple[LogPosition, list[Entry]] | None:
    """An earlier place as this set knows it, and the entries since; None when it cannot say.

    It cannot when it has not all of that place's entries, or no longer all since, or leaves out others.
    """
    then, dropped = place.read_heads(), deltas.log.dropped()
    if encode_heads(deltas.log.exclusions) != place.exclusions or not then.keys() <= deltas.heads.keys():
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
    """Turn the part of A that begins at coordinate `first` into what it was before some entries."""
    for entry in later:
        delta = delta_of(entry, rules)
        here = slice(*np.searchsorted(delta.indices, (first, first + len(part))))
        part[delta.indices[here] - np.uint32(first)] -= delta.values[here]


def encode_kept(chains: Iterable[list[Entry]], rules: SetRules) -> bytes:
    """The newest entries of each chain, within a bound: what a newcomer can serve, and take back after a fork."""
    chains = list(chains)
    most = max(KEPT_LEAST_BYTES, int(KEPT_SHARE * 4 * rules.size)) // max(1, len(chains))
    return msgspec.msgpack.encode([_newest(entries, most) for entries in chains])


def _newest(entries: list[Entry], most_bytes: int) -> list[bytes]:
    newest: list[bytes] = []
    for entry in reversed(entries):
        data = encode_entry(entry)
        most_bytes -= len(data)
        if most_bytes < 0:
            break
        newest.insert(0, data)
    return newest


def _place(deltas: DeltaSet, heads: dict[Chain, int], tips: dict[Chain, bytes], steps: int) -> LogPosition:
    rules = deltas.rules
    ordered = b"".join(tips[chain] for chain in sorted(tips))
    exclusions = encode_heads(deltas.log.exclusions)
    return LogPosition(
        rules.lineage, rules.model, rules.layout_hash, rules.size, encode_heads(heads), ordered, exclusions, steps
    )


# ---- taking ----


class Unsuited(ValueError):
    """A proper snapshot that this set cannot go on from: no fault of its giver."""


def take_over(
    place: LogPosition, units: Units, rules: SetRules, before: DeltaSet | None = None, kept: bytes = b""
) -> DeltaSet:
    """A set that goes on from a place where A was `units`.

    With a set from `before`, its entries after the place are added again (one's own among them), those just before it
    stay to be served, and its proofs of forks stay. Of `kept` (`encode_kept`) only what leads up to the place
    counts. ValueError when the place does not fit, Unsuited when it counts entries that are left out here.
    """
    why = check_place(place, rules)
    if why:
        raise ValueError(f"snapshot refused: {why}")
    heads = place.read_heads()
    excluded = before.log.exclusions if before is not None else {}
    if any(heads.get(chain, 0) >= seq for chain, seq in excluded.items()):
        raise Unsuited("snapshot refused: it counts entries that are left out here after a fork")
    after = DeltaSet(rules, units)
    after.steps = place.steps
    after.log.start_at(heads, place.read_tips(), decode_heads(place.exclusions))
    known = [before.log.entries(Span(chain, 1, head)) for chain, head in heads.items()] if before is not None else []
    for entries in (*known, *_read_kept(kept)):
        after.log.keep(entries)
    if before is not None:
        for entry in before.log:
            after.add(entry)
        for proof in before.log.proofs.values():
            after.add_proof(proof)
    return after


def _read_kept(kept: bytes) -> list[list[Entry]]:
    if not kept:
        return []
    chains = decoded(_kept_decoder, kept, "entries of a snapshot")
    return [[decode_entry(data) for data in chain] for chain in chains]


class SnapshotReader:
    """A at this place and at earlier ones, read block by block: nobody who needs the lock waits for all of it."""

    def __init__(self, now: Callable[[], DeltaSet], lock: AbstractContextManager[object]) -> None:
        self._now = now
        self._lock = lock

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """Of this place or of an earlier one; None when that is not known, ValueError when it is no place."""
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
        """What A's entries add up to, and what A in memory does; None when it moved on too fast to tell."""
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
        """Block by block, each at its place in `into` or, when that is not large enough, at its beginning.

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
    """A as a snapshot has it, without a copy; ValueError when it is of another size."""
    if len(snapshot.content) != 4 * rules.size:
        raise ValueError(f"a snapshot of {len(snapshot.content)} bytes for {rules.size} coordinates")
    return np.frombuffer(snapshot.content, "<i4").astype(np.int32, copy=False)


def adopted(snapshot: Snapshot, before: DeltaSet, me: PeerId) -> DeltaSet:
    """The set that goes on from a snapshot; ValueError when it does not fit.

    Unsuited when entries of our own would no longer count: our log must not say anything else in their place.
    """
    rules = before.rules
    place = decode_place(snapshot.place, rules)
    after = take_over(place, units_of(snapshot, rules), rules, before, snapshot.kept)
    if any(span.chain.peer == me for span in missing(after.heads, before.heads)):
        raise Unsuited("snapshot refused: entries of our own are missing in it that we no longer keep")
    return after


def first_free_incarnation(deltas: DeltaSet, me: PeerId) -> int:
    """For one whose own log is not known to the end: a newcomer has none, or lost its state."""
    return max([0, *(chain.incarnation + 1 for chain in deltas.heads if chain.peer == me)])
