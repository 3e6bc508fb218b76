"""Deltas as bytes.

    payload   version u8 · form u8 · size, count (varints) · indices · values · CRC-32 of all that, u32
    form      indices: 0 Rice code, 1 bytes (gaps.py), 2 drawn from a seed (u64), 3 dense: all · 4: plain values

An empty delta ends after its count, with form 0. `decode` trusts nothing: every length is known or bounded from `size`
and `max_entries` before it is allocated. The checksum is against damage; against forgery entries are signed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from . import version1
from .delta import Indices, SparseDelta
from .draw import draw_places
from .indices import Rice, gaps_of, read_byte_gaps, read_rice, write_byte_gaps
from .sections import SectionReader, varint
from .values import read_levels, read_plain, write_levels, write_plain

VERSION = 2
_RICE, _BYTES, _DRAWN, _DENSE, _PLAIN = 0, 1, 2, 3, 4
_SEED_BYTES, _SUM_BYTES = 8, 4
_WORTH_IT = 0.98  # Rice code takes three times as long to read


def encode_delta(delta: SparseDelta) -> bytes:
    """A delta as bytes; quantised ones get small, but any is encoded exactly."""
    form, indices, values = 0, b"", b""
    if len(delta):
        form, indices = _write_indices(delta)
        coded = write_levels(delta.values)
        form |= _PLAIN if coded is None else 0
        values = write_plain(delta.values) if coded is None else coded
    return sealed(b"".join([bytes([VERSION, form]), varint(delta.size), varint(len(delta)), indices, values]))


def sealed(body: bytes) -> bytes:
    """A payload with its checksum."""
    return body + zlib.crc32(body).to_bytes(_SUM_BYTES, "little")


def decode_delta(data: bytes, size: int, max_entries: int) -> SparseDelta:
    """The delta of `size` coordinates in `data`, at most `max_entries` of them; ValueError for anything else."""
    version = data[0] if data else 0
    if version == version1.VERSION:
        return version1.decode(data, size, max_entries)
    if version != VERSION:
        raise ValueError(f"payload version {version}; {version1.VERSION} and {VERSION} are understood")
    body = data[:-_SUM_BYTES]
    if len(data) < _SUM_BYTES or zlib.crc32(body) != int.from_bytes(data[-_SUM_BYTES:], "little"):
        raise ValueError("damaged or truncated: the checksum does not fit")
    reader = SectionReader(body)
    _, form = reader.take(2)
    told_size, count = reader.varint(), reader.varint()
    if told_size != size:
        raise ValueError(f"a delta of {told_size} coordinates; the model has {size}")
    if count > min(size, max_entries):
        raise ValueError(f"{count} entries; at most {min(size, max_entries)} are allowed")
    if form & ~(_DENSE | _PLAIN) or (count == 0 and form) or (form & _DENSE == _DENSE and count != size):
        raise ValueError(f"form {form} does not fit {count} entries")
    return _read(reader, form, size, count)


def _read(reader: SectionReader, form: int, size: int, count: int) -> SparseDelta:
    indices, values, seed = np.empty(0, np.uint32), np.empty(0, np.int32), None
    if count:
        indices, seed = _read_indices(reader, form & _DENSE, size, count)
        values = read_plain(reader, count) if form & _PLAIN else read_levels(reader, count)
    reader.end()
    return SparseDelta(size, indices, values, seed)


def _write_indices(delta: SparseDelta) -> tuple[int, bytes]:
    if delta.dense:
        return _DENSE, b""
    if delta.seed is not None:
        if not np.array_equal(delta.indices, draw_places(delta.size, len(delta), delta.seed)):
            raise ValueError("the indices are not those that the seed gives")
        return _DRAWN, delta.seed.to_bytes(_SEED_BYTES, "little")
    gaps = gaps_of(delta.indices)
    as_bytes, rice = write_byte_gaps(gaps), Rice(gaps)
    return (_RICE, rice.write()) if rice.about_bytes < _WORTH_IT * len(as_bytes) else (_BYTES, as_bytes)


def _read_indices(reader: SectionReader, form: int, size: int, count: int) -> tuple[Indices, int | None]:
    if form == _DENSE:
        return np.arange(size, dtype=np.uint32), None
    if form == _DRAWN:
        seed = int.from_bytes(reader.take(_SEED_BYTES), "little")
        return draw_places(size, count, seed), seed
    return (read_rice if form == _RICE else read_byte_gaps)(reader, count, size), None


# ---- the codecs an entry may name ----


@dataclass(frozen=True)
class Codec:
    """A way to put deltas into bytes, under the number entries name it by. Law: decode(encode(x)) = x."""

    name: str
    encode: Callable[[SparseDelta], bytes]
    decode: Callable[[bytes, int, int], SparseDelta]


RICE: Final = 1
CODECS: dict[int, Codec] = {RICE: Codec("rice", encode_delta, decode_delta)}
