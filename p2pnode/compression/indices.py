"""The indices of a delta as bytes: the gaps between them, in one of two codes.

    rice    widths (u8 per group of 512) · low bits of the gaps, groups of one width together, the last group by
            itself · length of the following (varint) · high parts of the gaps in unary
    bytes   a byte per gap · if there are bytes of 255: a width (u8) · by how much these gaps exceed 255

Rice code (Golomb 1966; Rice 1979) comes within 0.1 bits of the entropy of random indices, even of few. Bytes through
zstandard's Huffman coder are shorter where indices have a pattern, as in trained layers: rows, columns, dead inputs.
The readers do not trust their input: every length is known or bounded before memory is allocated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .bits import Numbers, pack_bits, packed_bytes, running_sum, true_indices, unpack_bits
from .delta import Indices
from .sections import SectionReader, part, varint

_GROUP = 512  # gaps that share a width: whole bytes, whatever the width
_MAX_WIDTH = 31
_LONG = 255

Gaps = npt.NDArray[np.int64]


def gaps_of(indices: Indices) -> Numbers:
    """The number of coordinates that are skipped before each index."""
    gaps = indices.copy()
    gaps[1:] -= indices[:-1] + np.uint32(1)
    return gaps


def _indices(gaps: Numbers, size: int) -> Indices:
    """The indices that the gaps describe. `gaps` is overwritten."""
    if int(gaps.sum(dtype=np.int64)) + len(gaps) > size:
        raise ValueError("an index beyond the model")
    gaps[1:] += 1
    return running_sum(gaps)


# ---- Rice code ----


def _in_groups(gaps: Numbers) -> Numbers:
    """The gaps in rows of one group each, padded with zeros."""
    rows = np.zeros((-(-len(gaps) // _GROUP), _GROUP), np.uint32)
    rows.reshape(-1)[: len(gaps)] = gaps
    return rows


def _widths(rows: Numbers, count: int) -> Numbers:
    """Returns the integer logarithm of each group's mean gap, so that unary parts take under three bits per gap."""
    lengths = np.minimum(count - np.arange(len(rows)) * _GROUP, _GROUP)
    means = rows.sum(axis=1) / lengths
    return np.where(means >= 1, np.frexp(means)[1] - 1, 0).astype(np.uint32)


class Rice:
    """Gaps in Rice code. Their length is known before they are written."""

    def __init__(self, gaps: Numbers) -> None:
        self._count = len(gaps)
        self._rows = _in_groups(gaps)
        self._widths = _widths(self._rows, self._count)
        self._highs = (self._rows >> self._widths[:, None]).reshape(-1)[: self._count]
        self._unary_bits = int(self._highs.sum(dtype=np.int64)) + self._count

    @property
    def about_bytes(self) -> int:
        """The length of what `write` gives, without the few bytes of its lengths."""
        missing = len(self._widths) * _GROUP - self._count
        low_bits = int(self._widths.sum()) * _GROUP - int(self._widths[-1]) * missing
        return (low_bits + self._unary_bits) // 8 + len(self._widths)

    def write(self) -> bytes:
        whole = self._count // _GROUP
        rows, widths = self._rows[:whole], self._widths[:whole]
        lows = [pack_bits(rows[widths == width].reshape(-1), int(width)) for width in np.unique(widths)]
        if self._count % _GROUP:
            lows.append(pack_bits(self._rows[-1, : self._count % _GROUP], int(self._widths[-1])))
        unary = np.zeros(self._unary_bits, bool)
        unary[np.cumsum(self._highs.astype(np.int64) + 1) - 1] = True
        packed = np.packbits(unary, bitorder="little").tobytes()
        return part(self._widths.astype(np.uint8).tobytes()) + part(b"".join(lows)) + varint(len(packed)) + part(packed)


def read_rice(reader: SectionReader, count: int, size: int) -> Indices:
    widths = np.frombuffer(reader.part(-(-count // _GROUP)), np.uint8).astype(np.int64)
    if int(widths.max()) > _MAX_WIDTH:
        raise ValueError("a gap wider than 31 bits")
    lows = _read_lows(reader, widths, count)
    highs = _read_highs(reader, count)
    if (highs > (size >> widths)[:, None]).any():
        raise ValueError("an index beyond the model")
    lows |= (highs << widths[:, None]).astype(np.uint32)
    return _indices(lows.reshape(-1)[:count], size)


def _read_lows(reader: SectionReader, widths: Gaps, count: int) -> Numbers:
    whole, rest = divmod(count, _GROUP)
    groups = np.bincount(widths[:whole]) if whole else np.zeros(0, np.int64)
    lengths = [(int(width), int(groups[width]) * _GROUP) for width in np.flatnonzero(groups)]
    lengths += [(int(widths[-1]), rest)] if rest else []
    packed, at = reader.part(sum(packed_bytes(numbers, width) for width, numbers in lengths)), 0
    rows = np.zeros((len(widths), _GROUP), np.uint32)
    for place, (width, numbers) in enumerate(lengths):
        length = packed_bytes(numbers, width)
        lows = unpack_bits(packed[at : at + length], numbers, width)
        at += length
        if rest and place == len(lengths) - 1:
            rows[-1, :rest] = lows
        else:
            rows[:whole][widths[:whole] == width] = lows.reshape(-1, _GROUP)
    return rows


def _read_highs(reader: SectionReader, count: int) -> Gaps:
    length = reader.varint()
    if length > packed_bytes(count, 3):
        raise ValueError(f"{length} bytes of unary numbers for {count} entries")
    unary = np.unpackbits(np.frombuffer(reader.part(length), np.uint8), bitorder="little").view(bool)
    ends = np.flatnonzero(unary)
    if len(ends) != count:
        raise ValueError(f"{len(ends)} gaps for {count} entries")
    rows = np.zeros((-(-count // _GROUP), _GROUP), np.int64)
    highs = rows.reshape(-1)[:count]
    highs[0] = ends[0]
    np.subtract(ends[1:], ends[:-1], out=highs[1:])
    highs[1:] -= 1
    return rows


# ---- bytes ----


def write_byte_gaps(gaps: Numbers) -> bytes:
    long = gaps[gaps >= _LONG] - np.uint32(_LONG)
    short = part(np.minimum(gaps, _LONG).astype(np.uint8).tobytes())
    if not len(long):
        return short
    width = int(long.max()).bit_length()
    return short + bytes([width]) + part(pack_bits(long, width))


def read_byte_gaps(reader: SectionReader, count: int, size: int) -> Indices:
    short = np.frombuffer(reader.part(count), np.uint8)
    gaps = short.astype(np.uint32)
    long = np.zeros(-(-count // 8) * 8, bool)
    np.equal(short, _LONG, out=long[:count])
    at = true_indices(long)
    if len(at):
        width = reader.take(1)[0]
        if width > _MAX_WIDTH:
            raise ValueError("a gap wider than 31 bits")
        gaps[at] += unpack_bits(reader.part(packed_bytes(len(at), width)), len(at), width)
    return _indices(gaps, size)
