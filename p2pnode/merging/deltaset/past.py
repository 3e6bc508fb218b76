"""A delta set's snapshots: made from a set that goes on meanwhile, and taken over by another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from ...compression.weights import BLOCK, Units, blocks
from ...wire.ids import PeerId
from ..snapshots.outline import Snapshot
from . import checksum
from .entry import SetRules
from .heads import Span, missing
from .set import DeltaSet
from .snapshots import (
    LogPosition,
    Unsuited,
    decode_place,
    encode_kept,
    encode_place,
    log_position,
    passed,
    take_off,
    take_over,
)


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
