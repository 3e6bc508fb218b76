"""The values of a delta as bytes: symbols for levels where a chunk has few of them, else every value by itself.

    levels   level width u8 · increment width u8 · levels per chunk, each as its increment over the one before ·
             symbols to a byte u8 · symbols: code and sign; 0 to a byte means packed without gaps
    plain    all values in four byte planes

Symbols are compressed by zstandard's Huffman coder. With several symbols to a byte it comes within 1 % of their
entropy; with one its table is smaller, which matters for few symbols. A chunk has 8192 values where 32 levels are
enough, else 65536.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .bits import Bytes, pack_bits, packed_bytes, unpack_bits
from .sections import SectionReader, entropy_coded, part, varint
from .weights import MAX_UNITS, Units

CHUNK, WIDE_CHUNK = 1 << 13, 1 << 16
_FEW, _MOST = 5, 7  # the largest level widths, in bits, of the two
_FEW_SYMBOLS = 1 << 15
_MAX_VARINT_BYTES = 5

Books = list[Units]


def _chunk(width: int) -> int:
    return CHUNK if width <= _FEW else WIDE_CHUNK


def write_levels(values: Units) -> bytes | None:
    """The values as levels; None when a chunk has too many different magnitudes."""
    magnitudes = np.abs(values)
    books = _books(magnitudes, CHUNK, 1 << _FEW) or _books(magnitudes, WIDE_CHUNK, 1 << _MOST)
    if books is None:
        return None
    width = (max(map(len, books)) - 1).bit_length()
    symbols = np.empty(len(values), np.uint8)
    for book, start in zip(books, range(0, len(values), _chunk(width)), strict=True):
        chunk = slice(start, start + _chunk(width))
        symbols[chunk] = _codes(magnitudes[chunk], book)
    symbols <<= 1
    symbols |= values < 0
    return bytes([width]) + _table(books, width) + _symbols(symbols, width + 1)


def _books(magnitudes: Units, chunk: int, maximum: int) -> Books | None:
    """The different magnitudes of each chunk, increasing; None when a chunk has more than `maximum`."""
    books = []
    for start in range(0, len(magnitudes), chunk):
        ordered = np.sort(magnitudes[start : start + chunk])
        book = ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
        if len(book) > maximum:
            return None
        books.append(book)
    return books


def _codes(magnitudes: Units, book: Units) -> npt.NDArray[np.integer]:
    """The index of each magnitude in its book."""
    if len(book) > 1 << _FEW:
        return np.searchsorted(book, magnitudes)
    codes = np.zeros(len(magnitudes), np.uint8)
    for level in book[1:]:
        codes += magnitudes >= level
    return codes


def _table(books: Books, width: int) -> bytes:
    levels = np.zeros((len(books), 1 << width), np.int32)
    for row, book in zip(levels, books, strict=True):
        row[: len(book)], row[len(book) :] = book, book[-1]
    increments = np.diff(levels, axis=1, prepend=0).astype(np.uint32).reshape(-1)
    bits = int(increments.max()).bit_length()
    return bytes([bits]) + part(pack_bits(increments, bits))


def _symbols(symbols: Bytes, bits: int) -> bytes:
    """The shortest of several ways: some symbols to a byte, compressed, or all of them packed without gaps."""
    fitting = 8 // bits
    lanes = [number for number in (8, 4, 2, 1) if number <= fitting] if len(symbols) < _FEW_SYMBOLS else [fitting]
    ways = [(number, entropy_coded(_joined(symbols, bits, number).tobytes())) for number in lanes]
    number, stored = min(ways, key=lambda way: len(way[1]))
    if len(stored) < packed_bytes(len(symbols), bits) - _MAX_VARINT_BYTES:
        return bytes([number]) + varint(len(stored)) + stored
    return b"\0" + pack_bits(symbols.astype(np.uint32), bits)


def _joined(symbols: Bytes, bits: int, lanes: int) -> Bytes:
    cells = np.zeros((-(-len(symbols) // lanes), lanes), np.uint8)
    cells.reshape(-1)[: len(symbols)] = symbols
    joined = cells[:, 0].copy()
    for lane in range(1, lanes):
        joined |= cells[:, lane] << np.uint8(lane * bits)
    return joined


def read_levels(reader: SectionReader, count: int) -> Units:
    width = reader.take(1)[0]
    if width > _MOST:
        raise ValueError(f"levels of {width} bits")
    chunk = _chunk(width)
    levels = _read_table(reader, -(-count // chunk), width)
    joined, lanes = _read_symbols(reader, count, width + 1)
    values = np.empty((len(joined), lanes), np.int32)
    for book, start in zip(_by_byte(levels, width + 1, lanes), range(0, len(joined), chunk // lanes), strict=True):
        cells = slice(start, start + chunk // lanes)
        book.take(joined[cells], axis=0, out=values[cells], mode="clip")
    return values.reshape(-1)[:count]


def _by_byte(levels: Units, bits: int, lanes: int) -> Units:
    """Returns for each chunk the values that each byte stands for."""
    by_symbol = np.stack([levels, -levels], axis=2).reshape(len(levels), -1)
    symbols = np.arange(1 << bits * lanes)[:, None] >> (bits * np.arange(lanes)) & ((1 << bits) - 1)
    return by_symbol[:, symbols]


def _read_table(reader: SectionReader, chunks: int, width: int) -> Units:
    bits = reader.take(1)[0]
    if bits > 32:
        raise ValueError(f"levels {bits} bits apart")
    count = chunks << width
    increments = unpack_bits(reader.part(packed_bytes(count, bits)), count, bits).reshape(chunks, -1)
    levels = np.cumsum(increments, axis=1, dtype=np.int64)
    if int(levels[:, -1].max()) > MAX_UNITS:
        raise ValueError(f"a level beyond {MAX_UNITS} units")
    return levels.astype(np.int32)


def _read_symbols(reader: SectionReader, count: int, bits: int) -> tuple[Bytes, int]:
    """The bytes, and how many symbols each of them holds."""
    lanes = reader.take(1)[0]
    if lanes * bits > 8:
        raise ValueError(f"{lanes} symbols of {bits} bits to a byte")
    if lanes == 0:
        return unpack_bits(reader.take(packed_bytes(count, bits)), count, bits).astype(np.uint8), 1
    joined = np.frombuffer(reader.compressed(-(-count // lanes)), np.uint8)
    if CHUNK % lanes or int(joined.max()) >> lanes * bits:
        raise ValueError(f"a byte that does not hold {lanes} symbols of {bits} bits")
    return joined, lanes


def write_plain(values: Units) -> bytes:
    return part(np.ascontiguousarray(values.astype("<i4").view(np.uint8).reshape(-1, 4).T).tobytes())


def read_plain(reader: SectionReader, count: int) -> Units:
    planes = np.frombuffer(reader.part(4 * count), np.uint8).reshape(4, count)
    return np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.int32, copy=False)
