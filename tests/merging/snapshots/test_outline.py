"""Snapshots as they travel: outlines, and content that comes in pieces from several sides, some of them wrong."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.merging.snapshots.outline import (
    CHUNK_BYTES,
    Assembly,
    ChunkSink,
    Outline,
    Snapshot,
    decode_outline,
    encode_outline,
    judge,
    outline_of,
)
from p2pnode.wire.errors import PeerMisbehaved

CONTENT = random.Random(1).randbytes(4 * CHUNK_BYTES + 77)
OUTLINE = outline_of(Snapshot(b"there", CONTENT))


def stream(assembly: Assembly, span: range, content: bytes = CONTENT, piece: int = 300_000) -> ChunkSink:
    """Send a span as the network would."""
    sink, data = ChunkSink(assembly, span), content[assembly.outline.place_of(span)]
    for start in range(0, len(data), piece):
        sink.write(data[start : start + piece])
    return sink


def bent(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32).map(random.Random), st.integers(1, 6), st.integers(50_000, 2 * CHUNK_BYTES))
def test_chunks_come_from_anyone_in_any_order_and_wrong_ones_are_fetched_again(
    rng: random.Random, most: int, piece: int
) -> None:
    assembly, streams = Assembly(OUTLINE), 0
    while not assembly.complete:
        streams += 1
        claimed = [span for span in (assembly.claim(rng.randint(1, most)) for _ in range(rng.randint(1, 3))) if span]
        rng.shuffle(claimed)
        for span in claimed:
            content = bent(CONTENT, rng.randrange(len(CONTENT))) if rng.random() < 0.3 and streams < 20 else CONTENT
            with contextlib.suppress(PeerMisbehaved):
                stream(assembly, span, content, piece)
            assembly.give_back(span)
    assert bytes(assembly.content) == CONTENT
    assert assembly.claim(99) is None


def test_nothing_that_was_checked_is_claimed_again() -> None:
    assembly = Assembly(OUTLINE)
    span = assembly.claim(5)
    assert span == range(5)
    with pytest.raises(PeerMisbehaved, match="chunk 2"):
        stream(assembly, span, bent(CONTENT, 2 * CHUNK_BYTES + 5))
    assembly.give_back(span)
    assert assembly.claim(5) == range(2, 5)


def test_two_never_fetch_the_same() -> None:
    assembly = Assembly(OUTLINE)
    spans = [assembly.claim(2), assembly.claim(2), assembly.claim(2), assembly.claim(2)]
    assert spans == [range(2), range(2, 4), range(4, 5), None]


def test_a_stream_is_named_by_the_hashes_of_its_chunks() -> None:
    span = range(1, 4)
    assert stream(Assembly(OUTLINE), span).hasher.digest() == OUTLINE.digest(span) != OUTLINE.digest(range(1, 3))


def test_another_snapshot_begins_with_the_chunks_that_are_the_same() -> None:
    first = Assembly(OUTLINE)
    stream(first, range(3))
    moved = bent(CONTENT, 5)
    again = Assembly(outline_of(Snapshot(b"later", moved)), first)
    assert again.claim(9) == range(1)
    assert again.claim(9) == range(3, 5)
    stream(again, range(1), moved)
    stream(again, range(3, 5), moved)
    assert again.complete
    assert bytes(again.content) == moved


def test_outlines_are_equal_only_for_the_same_place_and_content() -> None:
    assert decode_outline(encode_outline(OUTLINE), len(CONTENT)) == OUTLINE
    others = [Snapshot(b"here", CONTENT), Snapshot(b"there", bent(CONTENT, 9)), Snapshot(b"there", CONTENT[:-1])]
    names = {outline_of(other).name for other in others}
    assert len(names | {OUTLINE.name}) == 4


def test_a_wrong_outline_is_refused_by_name() -> None:
    replace = msgspec.structs.replace
    for bad, reason in [
        (replace(OUTLINE, chunks=OUTLINE.chunks[:-1]), "number of chunks"),
        (replace(OUTLINE, size=OUTLINE.size + CHUNK_BYTES), "are possible"),
        (replace(OUTLINE, size=1), "number of chunks"),
        (Outline(b"", 0, b""), "malformed"),
    ]:
        with pytest.raises(ValueError, match=reason):
            decode_outline(encode_outline(bad), len(CONTENT))
    for span in (range(4, 6), range(3, 3), range(-1, 2)):
        with pytest.raises(ValueError, match="chunks"):
            OUTLINE.place_of(span)
    rng, whole = random.Random(2), encode_outline(OUTLINE)
    for _ in range(2000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            decode_outline(bytes(data), len(CONTENT))


def test_the_majority_of_opinions_decides() -> None:
    assert judge(0, 0) == "unknown"
    assert judge(1, 0) == judge(2, 0) == judge(1, 1) == "confirmed"
    assert judge(0, 1) == judge(0, 2) == judge(1, 2) == "denied"
