"""Authors and their entries, for the tests of the delta set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from p2pnode.compression.codec import decode_delta, encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.merging.deltaset.entry import NO_HASH, Chain, Entry, SetRules, entry_id, rules_for, sign_entry
from p2pnode.merging.deltaset.log import Change
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.wire.ids import Identity

SIZE = 40
LINEAGE = b"l" * 32
AUTHORS = [Identity(bytes([number]) * 32) for number in range(1, 5)]
GENESIS: npt.NDArray[np.int32] = np.random.default_rng(0).integers(-(1 << 22), 1 << 22, SIZE).astype(np.int32)
RULES: SetRules = rules_for("digits", LINEAGE, "layout", GENESIS, max_density=0.5)


def delta(seed: int, count: int = 6, most: int = 9000) -> SparseDelta:
    rng = np.random.default_rng(seed)
    places = np.sort(rng.choice(SIZE, count, replace=False)).astype(np.uint32)
    return SparseDelta(SIZE, places, rng.integers(-most, most, count).astype(np.int32))


def entry(author: int, after: Entry | None, seed: int, incarnation: int = 0, **fields: object) -> Entry:
    """An author's entry that follows `after`."""
    given: dict[str, object] = {
        "lineage": LINEAGE,
        "model": "digits",
        "peer": "?",
        "incarnation": incarnation,
        "seq": 1 if after is None else after.seq + 1,
        "previous": NO_HASH if after is None else entry_id(after),
        "steps": 10,
        "payload": encode_delta(delta(seed)),
    }
    return sign_entry(AUTHORS[author], Entry(**{**given, **fields}))  # type: ignore[arg-type]


def chain(author: int, length: int, seed: int = 0, after: Entry | None = None, incarnation: int = 0) -> list[Entry]:
    """`length` entries one after the other."""
    made: list[Entry] = []
    for number in range(length):
        after = entry(author, after, 1000 * seed + 100 * author + number, incarnation)
        made.append(after)
    return made


def name(author: int, incarnation: int = 0) -> Chain:
    return Chain(AUTHORS[author].peer_id, incarnation)


def new_set() -> DeltaSet:
    return DeltaSet(RULES, GENESIS)


def set_of(entries: Iterable[Entry]) -> DeltaSet:
    deltas = new_set()
    deliver(deltas, entries)
    return deltas


def deliver(deltas: DeltaSet, entries: Iterable[Entry]) -> list[Change]:
    return [deltas.add(one) for one in entries]


def sum_of(entries: Sequence[Entry]) -> npt.NDArray[np.int32]:
    """Genesis and entries added up the slow way, in Python's numbers."""
    total = [int(value) for value in GENESIS]
    for one in entries:
        added = decode_delta(one.payload, SIZE, SIZE)
        for place, value in zip(added.indices.tolist(), added.values.tolist(), strict=True):
            total[place] = (total[place] + value + (1 << 31)) % (1 << 32) - (1 << 31)
    return np.array(total, np.int32)


def alike(one: DeltaSet, other: DeltaSet) -> bool:
    """The same set, with the same weights to the last bit."""
    same_place = one.log.digest() == other.log.digest() and one.steps == other.steps
    return same_place and np.array_equal(one.units, other.units) and one.hash() == other.hash()
