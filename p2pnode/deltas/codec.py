"""Deltas as bytes: gaps between indices in Rice code, values as codes into levels, zstandard over each part.

    payload   version u8, flags u8, size u32, count u32, then sections (nothing more when count is 0)
    indices   unless dense: widths (u8 per group of 512) · low bits of the gaps · high parts of the gaps in unary
    values    level width u8 · levels (u32 per chunk of 8192) · signs · codes;  or all values in four byte planes

A gap g in a group of width w (Golomb 1966; Rice 1979) is w low bits and g >> w in unary; for indices without pattern
this comes within 0.1 bits of the entropy, and groups adapt to where changes cluster. `decode` trusts nothing: every
length is known or bounded from `size` and `max_entries` before it is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..weights import MAX_UNITS, Units
from .bits import Numbers, pack, packed_bytes, unpack
from .delta import Indices, SparseDelta
from .quantise import CHUNK
from .sections import Reader, section

VERSION = 1
_HEADER = struct.Struct("<BBII")
_DENSE, _PLAIN = 1, 2
_GROUP = 512  # gaps that share a width
_MAX_WIDTH = 31
_MAX_LEVEL_WIDTH = 8

Gaps = npt.NDArray[np.int64]


def encode(delta: SparseDelta) -> bytes:
    """A delta as bytes; quantised ones get small, but any is encoded exactly."""
    if not len(delta):
        return _HEADER.pack(VERSION, 0, delta.size, 0)
    levels = _levels(delta.values)
    flags = (_DENSE if delta.dense else 0) | (_PLAIN if levels is None else 0)
    parts = [_HEADER.pack(VERSION, flags, delta.size, len(delta))]
    if not delta.dense:
        parts += _index_sections(delta.indices)
    parts += _plain_sections(delta.values) if levels is None else _value_sections(delta.values, *levels)
    return b"".join(parts)


def decode(data: bytes, size: int, max_entries: int) -> SparseDelta:
    """The delta of `size` coordinates in `data`, at most `max_entries` of them; ValueError for anything else."""
    reader = Reader(data)
    version, flags, told_size, count = _HEADER.unpack(reader.take(_HEADER.size))
    if version != VERSION:
        raise ValueError(f"payload version {version}; {VERSION} is understood")
    if told_size != size:
        raise ValueError(f"a delta of {told_size} coordinates; the model has {size}")
    if count > min(size, max_entries):
        raise ValueError(f"{count} entries; at most {min(size, max_entries)} are allowed")
    if flags & ~(_DENSE | _PLAIN) or (count == 0 and flags) or (flags & _DENSE and count != size):
        raise ValueError(f"flags {flags} do not fit {count} entries")
    if count == 0:
        reader.end()
        return SparseDelta(size, np.empty(0, np.uint32), np.empty(0, np.int32))
    indices = np.arange(size, dtype=np.uint32) if flags & _DENSE else _read_indices(reader, count, size)
    values = _read_plain(reader, count) if flags & _PLAIN else _read_values(reader, count)
    reader.end()
    return SparseDelta(size, indices, values)


# ---- indices ----


def _index_sections(indices: Indices) -> list[bytes]:
    gaps = np.diff(indices.astype(np.int64), prepend=-1) - 1
    widths = _widths(gaps)
    spread = np.repeat(widths, _GROUP)[: len(gaps)]
    ends = np.cumsum((gaps >> spread) + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, np.uint8)
    unary[ends] = 1
    lows = b"".join(pack(gaps[spread == width].astype(np.uint32), int(width)) for width in np.unique(widths))
    return [
        section(widths.astype(np.uint8).tobytes()),
        section(lows),
        section(np.packbits(unary, bitorder="little").tobytes()),
    ]


def _widths(gaps: Gaps) -> Gaps:
    """Per group the whole logarithm of the mean gap: then unary parts take under three bits a gap."""
    starts = np.arange(0, len(gaps), _GROUP)
    lengths = np.minimum(len(gaps) - starts, _GROUP)
    means = np.add.reduceat(gaps, starts) / lengths
    return np.where(means >= 1, np.frexp(means)[1] - 1, 0).astype(np.int64)


def _read_indices(reader: Reader, count: int, size: int) -> Indices:
    widths = np.frombuffer(reader.exactly(-(-count // _GROUP)), np.uint8).astype(np.int64)
    if int(widths.max()) > _MAX_WIDTH:
        raise ValueError("a gap wider than 31 bits")
    spread = np.repeat(widths, _GROUP)[:count]
    lows = _read_lows(reader, spread)
    unary = np.unpackbits(np.frombuffer(reader.section(packed_bytes(count, 3)), np.uint8), bitorder="little")
    ends = np.flatnonzero(unary)
    if len(ends) != count:
        raise ValueError(f"{len(ends)} gaps for {count} entries")
    highs = np.diff(ends, prepend=-1) - 1
    if (highs > size >> spread).any():
        raise ValueError("an index beyond the model")
    indices = np.cumsum(((highs << spread) | lows) + 1) - 1
    if int(indices[-1]) >= size:
        raise ValueError("an index beyond the model")
    return indices.astype(np.uint32)


def _read_lows(reader: Reader, spread: Gaps) -> Gaps:
    counts = np.bincount(spread)
    present = [(int(width), int(counts[width])) for width in np.flatnonzero(counts)]
    packed = reader.exactly(sum(packed_bytes(count, width) for width, count in present))
    lows, at = np.zeros(len(spread), np.int64), 0
    for width, count in present:
        length = packed_bytes(count, width)
        lows[spread == width] = unpack(packed[at : at + length], count, width)
        at += length
    return lows


# ---- values ----


def _levels(values: Units) -> tuple[int, Numbers, Numbers] | None:
    """Level width, levels per chunk and codes; None when some chunk has too many different magnitudes."""
    magnitudes = np.abs(values)
    books, codes = [], np.empty(len(values), np.uint32)
    for start in range(0, len(values), CHUNK):
        book, code = np.unique(magnitudes[start : start + CHUNK], return_inverse=True)
        if len(book) > 1 << _MAX_LEVEL_WIDTH:
            return None
        books.append(book)
        codes[start : start + CHUNK] = code
    width = (max(len(book) for book in books) - 1).bit_length()
    padded = [np.pad(book, (0, (1 << width) - len(book)), mode="edge") for book in books]
    return width, np.concatenate(padded).astype(np.uint32), codes


def _value_sections(values: Units, width: int, levels: Numbers, codes: Numbers) -> list[bytes]:
    signs = np.packbits(values < 0, bitorder="little").tobytes()
    return [bytes([width]), section(levels.astype("<u4").tobytes()), section(signs), section(pack(codes, width))]


def _read_values(reader: Reader, count: int) -> Units:
    width = reader.take(1)[0]
    if width > _MAX_LEVEL_WIDTH:
        raise ValueError(f"levels of {width} bits")
    chunks = -(-count // CHUNK)
    levels = np.frombuffer(reader.exactly(4 * chunks << width), "<u4")
    if int(levels.max()) > MAX_UNITS:
        raise ValueError(f"a level beyond {MAX_UNITS} units")
    packed_signs = np.frombuffer(reader.exactly(packed_bytes(count, 1)), np.uint8)
    signs = np.unpackbits(packed_signs, count=count, bitorder="little")
    codes = unpack(reader.exactly(packed_bytes(count, width)), count, width)
    codes += np.repeat(np.arange(chunks, dtype=np.uint32) << np.uint32(width), CHUNK)[:count]
    values: Units = levels.astype(np.int32)[codes]
    return np.where(signs, -values, values).astype(np.int32, copy=False)


def _plain_sections(values: Units) -> list[bytes]:
    return [section(np.ascontiguousarray(values.astype("<i4").view(np.uint8).reshape(-1, 4).T).tobytes())]


def _read_plain(reader: Reader, count: int) -> Units:
    planes = np.frombuffer(reader.exactly(4 * count), np.uint8).reshape(4, count)
    return np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.int32, copy=False)


# ---- the codecs an entry may name ----


@dataclass(frozen=True)
class Codec:
    """A way to put deltas into bytes, under the number entries name it by. Law: decode(encode(x)) = x."""

    name: str
    encode: Callable[[SparseDelta], bytes]
    decode: Callable[[bytes, int, int], SparseDelta]


RICE: Final = 1
CODECS: dict[int, Codec] = {RICE: Codec("rice", encode, decode)}
