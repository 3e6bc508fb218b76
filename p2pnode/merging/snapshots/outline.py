"""A snapshot as it travels: first its outline, then its content in chunks that are checked one by one. Pure.

The outline is small: the giver's position and the hash of each chunk. Members that give the same outline have the same
content, so the chunks can come from several members at once, in any order. Each wrong chunk is found by its hash, and
chunks that were checked are never fetched again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from blake3 import blake3

from ...wire.errors import PeerMisbehaved
from ...wire.types import HASH_BYTES, decoded

CHUNK_BYTES = 1 << 20
MAX_PLACE_BYTES = 1 << 20  # beyond wire.types.MAX_PLACE_BYTES nobody else can be asked to confirm it
MAX_CONTENT_BYTES = 1 << 40
NAME_BYTES = 16


@dataclass(frozen=True)
class Snapshot:
    """What a newcomer needs to start where a node is, or was.

    `place` is the position, in the policy's own format, so that other members can be asked for the same; empty if the
    policy has no common positions. `kept` may differ between members: the policy trusts nothing in it.
    """

    place: bytes
    content: bytes | bytearray | memoryview
    kept: bytes = b""


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot's content must be."""

    place: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONTENT_BYTES)]
    chunks: bytes  # the hashes of the chunks

    @property
    def count(self) -> int:
        return -(-self.size // CHUNK_BYTES)

    @property
    def name(self) -> bytes:
        """The name under which the snapshot is asked for."""
        return blake3(encode_outline(self)).digest(NAME_BYTES)

    def hash_of(self, number: int) -> bytes:
        return self.chunks[HASH_BYTES * number : HASH_BYTES * (number + 1)]

    def digest(self, span: range) -> bytes:
        """A digest of consecutive chunks, made of their hashes, so that nothing is hashed twice."""
        return blake3(b"p2pnode chunks 1\0" + b"".join(map(self.hash_of, span))).digest()

    def place_of(self, span: range) -> slice:
        """The part of the content that consecutive chunks take up; ValueError when there are no such chunks."""
        if not 0 <= span.start < span.stop <= self.count or span.step != 1:
            raise ValueError(f"chunks {span.start} to {span.stop} of {self.count}")
        return slice(span.start * CHUNK_BYTES, min(span.stop * CHUNK_BYTES, self.size))


_decoder = msgspec.msgpack.Decoder(Outline)


def outline_of(snapshot: Snapshot) -> Outline:
    """Heavy. The outline of a snapshot: hashes all of its content."""
    content = memoryview(snapshot.content)
    parts = (content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES))
    return Outline(snapshot.place, len(content), b"".join(blake3(part).digest() for part in parts))


def encode_outline(outline: Outline) -> bytes:
    return msgspec.msgpack.encode(outline)


def decode_outline(data: bytes, max_size: int) -> Outline:
    """The outline in `data`, of content of at most `max_size` bytes; ValueError for anything else."""
    outline = decoded(_decoder, data, "outline of a snapshot")
    if outline.size > max_size:
        raise ValueError(f"a snapshot of {outline.size} bytes; at most {max_size} are possible")
    if len(outline.chunks) != HASH_BYTES * outline.count:
        raise ValueError("the number of hashes is not the number of chunks")
    return outline


SnapshotVerdict = Literal["confirmed", "denied", "unknown"]


def judge(same: int, other: int) -> SnapshotVerdict:
    """The verdict on a snapshot of which `same` members have the same outline and `other` members another one."""
    if other > same:
        return "denied"
    return "confirmed" if same else "unknown"


class Assembly:
    """Content that is being fetched: which chunks are here, and which nobody fetches yet."""

    def __init__(self, outline: Outline, before: Assembly | None = None) -> None:
        """Chunks that an assembly from `before` already has are copied."""
        self.outline = outline
        self.content = np.empty(outline.size, np.uint8).data  # faster to fill than a bytearray, thanks to large pages
        self._free = dict.fromkeys(range(outline.count))
        self._checked: set[int] = set()
        if before is not None:
            self._take_from(before)

    @property
    def complete(self) -> bool:
        return len(self._checked) == self.outline.count

    def claim(self, limit: int) -> range | None:
        """Up to `limit` consecutive chunks that nobody fetches yet; None when there are none."""
        first = next(iter(self._free), None)
        if first is None:
            return None
        stop = first
        while stop in self._free and stop < first + limit:
            del self._free[stop]
            stop += 1
        return range(first, stop)

    def give_back(self, span: range) -> None:
        """Let others fetch the chunks of a claimed span that did not arrive."""
        left = [number for number in span if number not in self._checked]
        self._free = dict.fromkeys(sorted([*self._free, *left]))

    def take(self, number: int) -> bool:
        """Check a chunk that was written into the content; False when it is wrong."""
        if blake3(self._chunk(number)).digest() != self.outline.hash_of(number):
            return False
        self._checked.add(number)
        return True

    def _take_from(self, before: Assembly) -> None:
        known = {before.outline.hash_of(number): number for number in before._checked}
        for number in range(self.outline.count):
            there = known.get(self.outline.hash_of(number))
            if there is not None:
                self._chunk(number)[:] = before._chunk(there)
                self._checked.add(number)
                del self._free[number]

    def _chunk(self, number: int) -> memoryview:
        return self.content[self.outline.place_of(range(number, number + 1))]


class ChunkSink:
    """Writes a stream of consecutive chunks into an assembly and checks each as soon as it is complete."""

    def __init__(self, assembly: Assembly, span: range) -> None:
        self.offset = 0
        self.hasher = _Expected(assembly.outline.digest(span))  # the chunks' own hashes are what is compared
        self._assembly = assembly
        self._place = assembly.content[assembly.outline.place_of(span)]
        self._span = span
        self._next = 0  # in the span, the first incomplete chunk

    def write(self, piece: bytes) -> None:
        self._place[self.offset : self.offset + len(piece)] = piece
        self.offset += len(piece)
        while self._next < len(self._span) and self.offset >= min((self._next + 1) * CHUNK_BYTES, len(self._place)):
            number = self._span[self._next]
            if not self._assembly.take(number):
                raise PeerMisbehaved(f"chunk {number} of the snapshot does not have the hash its outline names")
            self._next += 1


@dataclass(frozen=True)
class _Expected:
    value: bytes

    def digest(self) -> bytes:
        return self.value
