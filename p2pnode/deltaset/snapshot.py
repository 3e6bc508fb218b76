"""Snapshots: A at given heads, cut into chunks that anyone can serve and everyone can check.

The snapshot itself is small: heads, tips, exclusions and the hashes of the chunks. Chunks are hashed uncompressed, so
they can come from several peers at once, in any order, and a wrong one is found by itself. What the hash of A should be
is asked of other members at the same digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from blake3 import blake3

from ..deltas.sections import Reader, section
from ..weights import MAX_SIZE, Units
from .accumulate import CHUNK_UNITS, chunk_hashes, hash_of_chunks
from .entry import HASH_BYTES, Chain, Count, Entry, Hash, ModelText, SetRules
from .heads import Span, decode_heads, encode_heads
from .log import digest_of
from .set import DeltaSet

_MAX_HEADS_BYTES = 1 << 18
_PLANES = 4


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Where a set stood, and what its weights hash to."""

    lineage: Hash
    model: ModelText
    layout: Annotated[str, msgspec.Meta(max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
    heads: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    tips: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]  # one hash for each head, in their order
    exclusions: Annotated[bytes, msgspec.Meta(max_length=_MAX_HEADS_BYTES)]
    steps: Count
    chunks: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES * (MAX_SIZE // CHUNK_UNITS))]  # their hashes

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self.size // CHUNK_UNITS)

    def weights_hash(self) -> bytes:
        """The hash of A."""
        return hash_of_chunks(self.size, [self.chunk_hash(number) for number in range(self.count)])

    def digest(self) -> bytes:
        """Where the set stood, as `EntrySet.digest` says it."""
        return digest_of(self.read_heads(), self.read_tips(), decode_heads(self.exclusions))

    def chunk_hash(self, number: int) -> bytes:
        return self.chunks[number * HASH_BYTES : (number + 1) * HASH_BYTES]

    def chunk_units(self, number: int) -> int:
        """How many coordinates a chunk has; ValueError when there is no such chunk."""
        if not 0 <= number < self.count:
            raise ValueError(f"chunk {number} of {self.count}")
        return min(CHUNK_UNITS, self.size - number * CHUNK_UNITS)

    def read_heads(self) -> dict[Chain, int]:
        return decode_heads(self.heads)

    def read_tips(self) -> dict[Chain, bytes]:
        chains = sorted(self.read_heads())
        return {chain: self.tips[at * HASH_BYTES : (at + 1) * HASH_BYTES] for at, chain in enumerate(chains)}


_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot:
    """The snapshot in `data`; ValueError for anything else."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed snapshot: {str(error)[:120]}") from None


def take_snapshot(deltas: DeltaSet) -> Snapshot:
    """Of a set as it is now. Its chunks are those of `deltas.units` (`encode_chunk`) until the set changes."""
    rules, log = deltas.rules, deltas.log
    tips = log.tips
    return Snapshot(
        rules.lineage,
        rules.model,
        rules.layout_hash,
        rules.size,
        encode_heads(log.heads),
        b"".join(tips[chain] for chain in sorted(tips)),
        encode_heads(log.exclusions),
        deltas.steps,
        b"".join(chunk_hashes(deltas.units)),
    )


def check_snapshot(snapshot: Snapshot, rules: SetRules) -> str:
    """Why a snapshot is not one of this lineage, or ""."""
    if snapshot.lineage != rules.lineage or snapshot.model != rules.model:
        return "another lineage or model"
    if snapshot.size != rules.size or snapshot.layout != rules.layout_hash:
        return "another layout"
    if len(snapshot.chunks) != snapshot.count * HASH_BYTES:
        return "not one hash for each chunk"
    try:
        heads, exclusions = snapshot.read_heads(), decode_heads(snapshot.exclusions)
    except ValueError as error:
        return f"heads: {error}"
    if len(snapshot.tips) != len(heads) * HASH_BYTES:
        return "not one tip for each head"
    if any(heads.get(chain, 0) >= seq for chain, seq in exclusions.items()):
        return "counts entries that it leaves out"
    return ""


def encode_chunk(units: Units, number: int) -> bytes:
    """A chunk as bytes: four byte planes, each compressed where that helps."""
    part = units[number * CHUNK_UNITS : (number + 1) * CHUNK_UNITS].astype("<i4")
    planes = np.ascontiguousarray(part.view(np.uint8).reshape(-1, _PLANES).T)
    return b"".join(section(plane.tobytes()) for plane in planes)


def decode_chunk(data: bytes, snapshot: Snapshot, number: int) -> Units:
    """The units in a chunk, its hash checked; ValueError for anything else."""
    count, reader = snapshot.chunk_units(number), Reader(data)
    planes = [np.frombuffer(reader.exactly(count), np.uint8) for _ in range(_PLANES)]
    reader.end()
    units = np.ascontiguousarray(np.stack(planes).T).view("<i4").ravel()
    if blake3(units.view(np.uint8).data).digest() != snapshot.chunk_hash(number):
        raise ValueError(f"chunk {number} does not have the hash the snapshot names")
    return units.astype(np.int32, copy=False)


def take_over(snapshot: Snapshot, units: Units, rules: SetRules, before: DeltaSet | None = None) -> DeltaSet:
    """A set that goes on from a snapshot whose chunks made up `units`.

    With a set from `before`, its entries after the snapshot are added again (one's own among them), those just before
    it stay to be served, and its proofs of forks stay. ValueError when the snapshot does not fit, its hash is not that
    of `units`, or it counts entries that are left out here.
    """
    why = check_snapshot(snapshot, rules)
    if why:
        raise ValueError(f"snapshot refused: {why}")
    if chunk_hashes(units) != [snapshot.chunk_hash(number) for number in range(snapshot.count)]:
        raise ValueError("snapshot refused: the weights do not have the hash it names")
    heads = snapshot.read_heads()
    excluded = before.log.exclusions if before is not None else {}
    if any(heads.get(chain, 0) >= seq for chain, seq in excluded.items()):
        raise ValueError("snapshot refused: it counts entries that are left out here after a fork")
    after = DeltaSet(rules, units)
    after.steps = snapshot.steps
    after.log.start_at(heads, snapshot.read_tips(), decode_heads(snapshot.exclusions))
    if before is not None:
        _carry_over(before, after)
    return after


def _carry_over(before: DeltaSet, after: DeltaSet) -> None:
    for chain, head in after.heads.items():
        after.log.keep(before.log.entries(Span(chain, 1, head)))
    for entry in _later(list(before.log), after):
        after.add(entry)
    for proof in before.log.proofs.values():
        after.add_proof(proof)


def _later(entries: Sequence[Entry], deltas: DeltaSet) -> list[Entry]:
    heads = deltas.heads
    return [entry for entry in entries if entry.seq > heads.get(entry.chain, 0)]
