"""Bytes that are no deltas: refused with a reason, and never more memory than the bounds allow."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.codec import decode_delta, encode_delta, with_checksum
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.sections import inflate, part, varint
from p2pnode.compression.weights import MAX_UNITS
from tests.fuzz.decode_deltas import WITH_CHECKSUM, by_chance, check, every_form, example, mutated, seeds


def test_a_delta_for_another_model_or_of_too_many_entries_is_refused() -> None:
    delta = example()
    data = encode_delta(delta)
    with pytest.raises(ValueError, match="20000 coordinates; the model has 20001"):
        decode_delta(data, delta.size + 1, len(delta))
    with pytest.raises(ValueError, match="at most 199"):
        decode_delta(data, delta.size, 199)


@pytest.mark.parametrize("delta", every_form(), ids=lambda delta: f"{delta.size}-{len(delta)}")
def test_every_flipped_bit_lost_byte_and_exchanged_part_is_refused(delta: SparseDelta) -> None:
    data = encode_delta(delta)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"checksum|version|truncated|coordinates|entries|part"):
            decode_delta(bytes(flipped), delta.size, len(delta))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"checksum|version"):
            decode_delta(data[:length], delta.size, len(delta))
    for cut in range(3, len(data) - 1, 5):
        with pytest.raises(ValueError, match=r"checksum|version|truncated|part"):
            decode_delta(data[:2] + data[cut:] + data[2:cut], delta.size, len(delta))


def test_other_versions_and_bytes_too_many_are_refused() -> None:
    delta = example()
    data = encode_delta(delta)
    with pytest.raises(ValueError, match="version 9; only version 2 is understood"):
        decode_delta(with_checksum(b"\x09" + data[1:-4]), delta.size, len(delta))
    with pytest.raises(ValueError, match="version 0"):
        decode_delta(b"", delta.size, len(delta))
    with pytest.raises(ValueError, match="1 bytes too many"):
        decode_delta(with_checksum(data[:-4] + b"\0"), delta.size, len(delta))


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


BEGINNINGS = seeds()


@pytest.mark.usefixtures("traced_memory")
@given(st.sampled_from(BEGINNINGS), st.randoms(use_true_random=False))
def test_mutations_give_a_bounded_delta_or_a_reason(beginning: bytes, rng: random.Random) -> None:
    check(mutated(beginning, rng))


@pytest.mark.usefixtures("traced_memory")
@given(st.sampled_from([WITH_CHECKSUM, 0]), st.integers(0, 255), st.binary(max_size=60))
def test_bytes_from_nowhere_give_a_bounded_delta_or_a_reason(kind: int, place: int, body: bytes) -> None:
    check(bytes([kind, place]) + body)


@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize("seed", range(4))
def test_many_mutations(seed: int) -> None:
    """2000 a seed; `python -m tests.fuzz.decode_deltas` goes on for longer, guided by coverage."""
    assert by_chance(BEGINNINGS, 2000, seed), "some mutations only change values"


def test_every_beginning_is_a_delta() -> None:
    assert sum(map(check, BEGINNINGS)) >= len(every_form())


def test_a_decompression_bomb_is_refused_before_it_unfolds() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    header = bytes([2, 1]) + varint(1 << 20) + varint(30_000)
    tracemalloc.start()
    for stored in (bomb, unsized):
        with pytest.raises(ValueError, match="declare"):
            decode_delta(with_checksum(header + varint(len(stored)) + stored), 1 << 20, 1 << 20)
        with pytest.raises(ValueError, match="declare"):
            inflate(stored, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_a_header_alone_makes_nothing_large(form: int) -> None:
    """The header may promise 2³¹ entries; memory follows what is allowed and the bytes that are there."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="at most 1000"):
        decode_delta(with_checksum(bytes([2, form]) + varint(1 << 31) + varint(1 << 31)), 1 << 31, 1000)
    with pytest.raises(ValueError, match=r"at most 1000|truncated|form"):
        decode_delta(with_checksum(bytes([2, form]) + varint(1 << 31) + varint(1000)), 1 << 31, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(("form", "count"), [(0, 0), (1, 0), (2, 2), (3, 2), (7, 5), (8, 2), (6, 0)])
def test_forms_that_do_not_fit_are_refused(form: int, count: int) -> None:
    body = with_checksum(bytes([2, form]) + varint(5) + varint(count))
    if form == 0:
        assert len(decode_delta(body, 5, 5)) == 0
        return
    with pytest.raises(ValueError, match=f"form {form} does not fit {count} entries"):
        decode_delta(body, 5, 5)


def two_of_five(form: int, indices: bytes, levels: bytes | None = None) -> SparseDelta:
    """Two entries of five coordinates, written by hand; levels: width 0, increments of 3 bits, one symbol bit each."""
    body = bytes([2, form]) + varint(5) + varint(2) + indices + (levels or b"\0\x03" + part(b"\x07") + b"\0\x02")
    return decode_delta(with_checksum(body), 5, 5)


@pytest.mark.parametrize(
    ("widths", "lows", "unary", "reason"),
    [
        ([0], b"", 0b101, ""),  # gaps 0 and 1: indices 0 and 2
        ([0], b"", 0b1, "1 gaps for 2 entries"),
        ([0], b"", 0b111, "3 gaps for 2 entries"),
        ([0], b"", 0b110000, "beyond"),
        ([32], bytes(8), 0b11, "31 bits"),
        ([31], bytes(8), 0b101, "beyond"),
        ([3], b"\x3f", 0b11, "beyond"),
        ([0], b"", 0b11 << 7, "2 bytes of unary"),
    ],
)
def test_rice_coded_indices_are_read_without_trust(widths: list[int], lows: bytes, unary: int, reason: str) -> None:
    high = unary.to_bytes((unary.bit_length() + 7) // 8, "little")
    indices = part(bytes(widths)) + part(lows) + varint(len(high)) + part(high)
    if not reason:
        assert two_of_five(0, indices).indices.tolist() == [0, 2]
        assert two_of_five(0, indices).values.tolist() == [7, -7]
        return
    with pytest.raises(ValueError, match=reason):
        two_of_five(0, indices)


@pytest.mark.parametrize(
    ("gaps", "rest", "reason"),
    [
        ([0, 1], b"", ""),
        ([1, 3], b"", "beyond"),
        ([0, 255], b"\x08" + part(b"\0"), "beyond"),
        ([0, 255], b"\x20" + part(bytes(4)), "31 bits"),
        ([255, 255], b"\x1f" + part(b"\xff" * 8), "beyond"),
        ([0, 255], b"", "part|truncated"),
    ],
)
def test_indices_as_bytes_are_read_without_trust(gaps: list[int], rest: bytes, reason: str) -> None:
    """An index twice cannot be said: a gap is never below nothing."""
    if not reason:
        assert two_of_five(1, part(bytes(gaps)) + rest).indices.tolist() == [0, 2]
        return
    with pytest.raises(ValueError, match=reason):
        two_of_five(1, part(bytes(gaps)) + rest)


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        (b"\x08", "levels of 8 bits"),
        (b"\0\x21", "33 bits apart"),
        (b"\0\x1f" + part((MAX_UNITS + 1).to_bytes(4, "little")) + b"\0\x02", "a level beyond"),
        (b"\x01\x20" + part(b"\xff" * 8) + b"\0\x02", "a level beyond"),
        (b"\0\x03" + part(b"\x07") + b"\x09", "9 symbols of 1 bits to a byte"),
        (b"\0\x03" + part(b"\x07") + b"\0", "truncated"),
        (b"\0\x03" + b"\x01\x07\0\x02", "damaged|declare"),
    ],
)
def test_levels_are_read_without_trust(levels: bytes, reason: str) -> None:
    """A scale that is infinite or no number cannot be said: levels are whole and bounded."""
    with pytest.raises(ValueError, match=reason):
        two_of_five(1, part(bytes([0, 1])), levels)


def test_symbols_beyond_their_levels_are_refused() -> None:
    table = bytes([5, 1]) + part(bytes(4))
    symbols = zstandard.ZstdCompressor().compress(b"\x40" * 1000)
    body = bytes([2, 2]) + varint(1000) * 2 + table + b"\x01" + varint(len(symbols)) + symbols
    with pytest.raises(ValueError, match="does not hold 1 symbols of 6 bits"):
        decode_delta(with_checksum(body), 1000, 1000)


def test_plain_values_beyond_the_grid_are_refused() -> None:
    planes = part(b"\x01\0\0\x40")
    with pytest.raises(ValueError, match="a value beyond"):
        decode_delta(with_checksum(bytes([2, 6]) + varint(1) * 2 + planes), 1, 1)
