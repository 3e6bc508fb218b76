"""Bytes that are no deltas: refused with a reason, and never more memory than the bounds allow."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.deltas.codec import decode, encode, sealed
from p2pnode.deltas.delta import SparseDelta, dense_delta
from p2pnode.deltas.draw import draw_places
from p2pnode.deltas.make import make_delta
from p2pnode.deltas.quantise import quantise
from p2pnode.deltas.sections import inflate, part, section, varint
from p2pnode.weights import MAX_UNITS
from tests.deltas.test_format_versions import VERSION_1


def example(size: int = 20_000, density: float = 0.01, bits: int = 2) -> SparseDelta:
    rng = np.random.default_rng(5)
    residual = (rng.standard_normal(size) * 30_000).astype(np.int32)
    return make_delta(residual, int(size * density), bits, 1 / 8)[0]


def clustered() -> SparseDelta:
    places = np.concatenate([np.arange(100, 400), np.arange(5000, 5600, 3), [9000]]).astype(np.uint32)
    return SparseDelta(10_000, places, np.where(places % 7 < 3, 5, -9).astype(np.int32))


def every_form() -> list[SparseDelta]:
    """Rice code and bytes, drawn and dense; levels of all widths and plain values."""
    values = np.random.default_rng(3).integers(-50, 50, 60).astype(np.int32)
    drawn = SparseDelta(500, draw_places(500, 60, 9), values, 9)
    plain = SparseDelta(4000, np.arange(0, 4000, 20, dtype=np.uint32), np.arange(-100, 100, dtype=np.int32) * 7)
    dense = dense_delta(quantise(values, 4))
    return [example(2000, 0.02), example(3000, 0.3, 4), example(2000, 0.1, 8), clustered(), plain, drawn, dense]


def test_a_delta_for_another_model_or_of_too_many_entries_is_refused() -> None:
    delta = example()
    data = encode(delta)
    with pytest.raises(ValueError, match="20000 coordinates; the model has 20001"):
        decode(data, delta.size + 1, len(delta))
    with pytest.raises(ValueError, match="at most 199"):
        decode(data, delta.size, 199)


@pytest.mark.parametrize("delta", every_form(), ids=lambda delta: f"{delta.size}-{len(delta)}")
def test_every_flipped_bit_lost_byte_and_exchanged_part_is_refused(delta: SparseDelta) -> None:
    data = encode(delta)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"checksum|version|truncated|coordinates|entries|part"):
            decode(bytes(flipped), delta.size, len(delta))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"checksum|version"):
            decode(data[:length], delta.size, len(delta))
    for cut in range(3, len(data) - 1, 5):
        with pytest.raises(ValueError, match=r"checksum|version|truncated|part"):
            decode(data[:2] + data[cut:] + data[2:cut], delta.size, len(delta))


def test_other_versions_and_bytes_too_many_are_refused() -> None:
    delta = example()
    data = encode(delta)
    with pytest.raises(ValueError, match="version 9; 1 and 2 are understood"):
        decode(sealed(b"\x09" + data[1:-4]), delta.size, len(delta))
    with pytest.raises(ValueError, match="version 0"):
        decode(b"", delta.size, len(delta))
    with pytest.raises(ValueError, match="1 bytes too many"):
        decode(sealed(data[:-4] + b"\0"), delta.size, len(delta))


@given(st.data(), st.integers(0, 1 << 32))
def test_sealed_mutations_give_a_bounded_delta_or_a_reason(data: st.DataObject, seed: int) -> None:
    delta = data.draw(st.sampled_from(every_form()))
    rng = random.Random(seed)
    decoded_or_refused(sealed(mutated(encode(delta)[:-4], rng)), delta.size, len(delta))


@pytest.mark.parametrize("seed", range(4))
def test_hostile_bytes_never_crash_and_never_pass_a_bound(seed: int) -> None:
    """25,000 mutations a seed, of both versions: a bounded, well-formed delta or ValueError, nothing else."""
    rng = random.Random(seed)
    samples = [(encode(delta)[:-4], delta.size, len(delta)) for delta in every_form()]
    samples += [(bytes.fromhex(data), delta.size, len(delta)) for delta, data in VERSION_1.values() if len(delta)]
    survived = 0
    for _ in range(25_000):
        data, size, most = rng.choice(samples)
        changed = mutated(data, rng)
        survived += decoded_or_refused(sealed(changed) if changed[:1] == b"\x02" else changed, size, most)
    assert survived, "some mutations only change values"


def decoded_or_refused(data: bytes, size: int, most: int) -> bool:
    """Whether it was decoded."""
    try:
        delta = decode(data, size, most)
    except ValueError:
        return False
    assert len(delta) <= most
    assert delta.size == size
    return True


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(out))
        action = rng.randrange(5)
        if action == 0:
            out[place] = rng.randrange(256)
        elif action == 1:
            out[place] ^= 1 << rng.randrange(8)
        elif action == 2:
            del out[place : place + rng.randrange(1, 9)]
        elif action == 3:
            out[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            out[place:] = out[place + 3 :] + out[place : place + 3]
        if not out:
            return b""
    return bytes(out)


def test_a_decompression_bomb_is_refused_before_it_unfolds() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    header = bytes([2, 1]) + varint(1 << 20) + varint(30_000)
    older = b"\x01\0" + (1 << 20).to_bytes(4, "little") + (1000).to_bytes(4, "little")
    tracemalloc.start()
    for stored in (bomb, unsized):
        with pytest.raises(ValueError, match="declare"):
            decode(sealed(header + varint(len(stored)) + stored), 1 << 20, 1 << 20)
        with pytest.raises(ValueError, match="declare"):
            inflate(stored, 1000)
    for data in (older + varint(1 << 28) + varint(len(bomb)) + bomb, older + section(bytes(2)) + bomb):
        with pytest.raises(ValueError, match=r"are due|truncated|declare"):
            decode(data, 1 << 20, 1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_a_header_alone_makes_nothing_large(form: int) -> None:
    """The header may promise 2³¹ entries; memory follows what is allowed and the bytes that are there."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="at most 1000"):
        decode(sealed(bytes([2, form]) + varint(1 << 31) + varint(1 << 31)), 1 << 31, 1000)
    with pytest.raises(ValueError, match=r"at most 1000|truncated|form"):
        decode(sealed(bytes([2, form]) + varint(1 << 31) + varint(1000)), 1 << 31, 1000)
    with pytest.raises(ValueError, match="at most 1000"):
        decode(b"\x01\x01" + (1 << 31).to_bytes(4, "little") * 2, 1 << 31, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(("form", "count"), [(0, 0), (1, 0), (3, 2), (8, 2), (6, 0)])
def test_forms_that_do_not_fit_are_refused(form: int, count: int) -> None:
    body = sealed(bytes([2, form]) + varint(5) + varint(count))
    if form == 0:
        assert len(decode(body, 5, 5)) == 0
        return
    with pytest.raises(ValueError, match=f"form {form} does not fit {count} entries"):
        decode(body, 5, 5)


def two_of_five(form: int, indices: bytes, levels: bytes | None = None) -> SparseDelta:
    """Two entries of five coordinates, written by hand; levels: width 0, increments of 3 bits, one symbol bit each."""
    body = bytes([2, form]) + varint(5) + varint(2) + indices + (levels or b"\0\x03" + part(b"\x07") + b"\0\x02")
    return decode(sealed(body), 5, 5)


@pytest.mark.parametrize(
    ("widths", "lows", "unary", "why"),
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
def test_rice_coded_indices_are_read_without_trust(widths: list[int], lows: bytes, unary: int, why: str) -> None:
    high = unary.to_bytes((unary.bit_length() + 7) // 8, "little")
    indices = part(bytes(widths)) + part(lows) + varint(len(high)) + part(high)
    older = section(bytes(widths)) + section(lows) + section(high)
    values = bytes([0]) + section((7).to_bytes(4, "little")) + section(b"\x02") + section(b"")
    if not why:
        assert two_of_five(0, indices).indices.tolist() == [0, 2]
        assert two_of_five(0, indices).values.tolist() == [7, -7]
        assert decode(b"\x01\0\x05\0\0\0\x02\0\0\0" + older + values, 5, 5) == two_of_five(0, indices)
        return
    with pytest.raises(ValueError, match=why):
        two_of_five(0, indices)
    with pytest.raises(ValueError, match=why.replace("2 bytes of unary", "0 to 1")):
        decode(b"\x01\0\x05\0\0\0\x02\0\0\0" + older + values, 5, 5)


@pytest.mark.parametrize(
    ("gaps", "rest", "why"),
    [
        ([0, 1], b"", ""),
        ([1, 3], b"", "beyond"),
        ([0, 255], b"\x08" + part(b"\0"), "beyond"),
        ([0, 255], b"\x20" + part(bytes(4)), "31 bits"),
        ([255, 255], b"\x1f" + part(b"\xff" * 8), "beyond"),
        ([0, 255], b"", "part|truncated"),
    ],
)
def test_indices_as_bytes_are_read_without_trust(gaps: list[int], rest: bytes, why: str) -> None:
    """An index twice cannot be said: a gap is never below nothing."""
    if not why:
        assert two_of_five(1, part(bytes(gaps)) + rest).indices.tolist() == [0, 2]
        return
    with pytest.raises(ValueError, match=why):
        two_of_five(1, part(bytes(gaps)) + rest)


@pytest.mark.parametrize(
    ("levels", "why"),
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
def test_levels_are_read_without_trust(levels: bytes, why: str) -> None:
    """A scale that is infinite or no number cannot be said: levels are whole and bounded."""
    with pytest.raises(ValueError, match=why):
        two_of_five(1, part(bytes([0, 1])), levels)


def test_symbols_beyond_their_levels_are_refused() -> None:
    table = bytes([5, 1]) + part(bytes(4))
    symbols = zstandard.ZstdCompressor().compress(b"\x40" * 1000)
    body = bytes([2, 3]) + varint(1000) * 2 + table + b"\x01" + varint(len(symbols)) + symbols
    with pytest.raises(ValueError, match="does not hold 1 symbols of 6 bits"):
        decode(sealed(body), 1000, 1000)


def test_plain_values_beyond_the_grid_are_refused() -> None:
    planes = part(b"\x01\0\0\x40")
    with pytest.raises(ValueError, match="a value beyond"):
        decode(sealed(bytes([2, 7]) + varint(1) * 2 + planes), 1, 1)
