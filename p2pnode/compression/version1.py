"""Reads deltas of the first format, which is no longer written.

payload   version u8, flags u8, size u32, count u32, then sections (nothing more when count is 0)
indices   unless dense: widths (u8 per group of 512) · low bits of the gaps · high parts of the gaps in unary
values    level width u8 · levels (u32 per chunk of 8192) · signs · codes;  or all values in four byte planes
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from .bits import Numbers, packed_bytes
from .delta import Indices, SparseDelta
from .sections import SectionReader
from .weights import MAX_UNITS, Units

VERSION = 1
_HEADER = struct.Struct("<BBII")
_DENSE, _PLAIN = 1, 2
_GROUP = 512  # gaps that share a width
_CHUNK = 8192  # values that share levels
_MAX_WIDTH = 31
_MAX_LEVEL_WIDTH = 8
_BLOCK = 1 << 16  # numbers unpacked at a time; a multiple of 8, so that blocks end on whole bytes

Gaps = npt.NDArray[np.int64]


def decode(data: bytes, size: int, max_entries: int) -> SparseDelta:
    """The delta of `size` coordinates in `data`, at most `max_entries` of them; ValueError for anything else."""
    reader = SectionReader(data)
    _, flags, told_size, count = _HEADER.unpack(reader.take(_HEADER.size))
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


def _read_indices(reader: SectionReader, count: int, size: int) -> Indices:
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


def _read_lows(reader: SectionReader, spread: Gaps) -> Gaps:
    counts = np.bincount(spread)
    present = [(int(width), int(counts[width])) for width in np.flatnonzero(counts)]
    packed = reader.exactly(sum(packed_bytes(count, width) for width, count in present))
    lows, at = np.zeros(len(spread), np.int64), 0
    for width, count in present:
        length = packed_bytes(count, width)
        lows[spread == width] = _unpack(packed[at : at + length], count, width)
        at += length
    return lows


def _read_values(reader: SectionReader, count: int) -> Units:
    width = reader.take(1)[0]
    if width > _MAX_LEVEL_WIDTH:
        raise ValueError(f"levels of {width} bits")
    chunks = -(-count // _CHUNK)
    levels = np.frombuffer(reader.exactly(4 * chunks << width), "<u4")
    if int(levels.max()) > MAX_UNITS:
        raise ValueError(f"a level beyond {MAX_UNITS} units")
    packed_signs = np.frombuffer(reader.exactly(packed_bytes(count, 1)), np.uint8)
    signs = np.unpackbits(packed_signs, count=count, bitorder="little")
    codes = _unpack(reader.exactly(packed_bytes(count, width)), count, width)
    codes += np.repeat(np.arange(chunks, dtype=np.uint32) << np.uint32(width), _CHUNK)[:count]
    values: Units = levels.astype(np.int32)[codes]
    return np.where(signs, -values, values).astype(np.int32, copy=False)


def _read_plain(reader: SectionReader, count: int) -> Units:
    planes = np.frombuffer(reader.exactly(4 * count), np.uint8).reshape(4, count)
    return np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.int32, copy=False)


def _unpack(data: bytes, count: int, width: int) -> Numbers:
    """Numbers of `width` bits, one after the other, little end first."""
    numbers = np.zeros(count, np.uint32)
    if width == 0:
        return numbers
    raw = np.frombuffer(data, np.uint8)
    for start in range(0, count, _BLOCK):
        here = min(_BLOCK, count - start)
        first = start * width // 8
        bits = np.unpackbits(raw[first : first + packed_bytes(here, width)], count=here * width, bitorder="little")
        lanes = np.packbits(bits.reshape(here, width), axis=1, bitorder="little")
        block = np.zeros((here, 4), np.uint8)
        block[:, : lanes.shape[1]] = lanes
        numbers[start : start + here] = block.view("<u4").ravel()
    return numbers
