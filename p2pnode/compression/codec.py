"""The wire format of a delta: `encode_delta` and `decode_delta`.

    payload   version u8 · form u8 · size, count (varints) · indices · values · CRC-32 of all that, u32
    form      indices: 0 Rice code, 1 bytes (indices.py), 2 dense: no indices · plus 4: plain values (values.py)

An empty delta ends after its count and has form 0. The decoder does not trust its input: it knows or bounds every
length from `size` and `max_entries` before it allocates memory. The checksum detects damage; signatures of entries
protect against forgery.
"""

from __future__ import annotations

import zlib

import numpy as np

from .delta import Indices, SparseDelta
from .indices import Rice, gaps_of, read_byte_gaps, read_rice, write_byte_gaps
from .sections import SectionReader, varint
from .values import read_levels, read_plain, write_levels, write_plain

VERSION = 2
_RICE, _BYTES, _DENSE, _PLAIN = 0, 1, 2, 4
_FORMS = {indices | values for indices in (_RICE, _BYTES, _DENSE) for values in (0, _PLAIN)}
_CHECKSUM_BYTES = 4
_RICE_WORTH_IT = 0.98  # of the length in bytes; Rice code takes three times as long to read


def encode_delta(delta: SparseDelta) -> bytes:
    """The delta as bytes. Every delta is encoded exactly; quantised ones become small."""
    form, indices, values = 0, b"", b""
    if len(delta):
        form, indices = _write_indices(delta)
        coded = write_levels(delta.values)
        form |= _PLAIN if coded is None else 0
        values = write_plain(delta.values) if coded is None else coded
    return with_checksum(b"".join([bytes([VERSION, form]), varint(delta.size), varint(len(delta)), indices, values]))


def with_checksum(body: bytes) -> bytes:
    """The payload that has this body."""
    return body + zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def decode_delta(data: bytes, size: int, max_entries: int) -> SparseDelta:
    """The delta in `data`, of `size` coordinates and with at most `max_entries` entries; ValueError otherwise."""
    version = data[0] if data else 0
    if version != VERSION:
        raise ValueError(f"payload version {version}; only version {VERSION} is understood")
    body = data[:-_CHECKSUM_BYTES]
    if len(data) < _CHECKSUM_BYTES or zlib.crc32(body) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
        raise ValueError("damaged or truncated: the checksum does not match")
    reader = SectionReader(body)
    _, form = reader.take(2)
    stated_size, count = reader.varint(), reader.varint()
    if stated_size != size:
        raise ValueError(f"a delta of {stated_size} coordinates; the model has {size}")
    if count > min(size, max_entries):
        raise ValueError(f"{count} entries; at most {min(size, max_entries)} are allowed")
    if form not in _FORMS or (count == 0 and form) or (form & _DENSE and count != size):
        raise ValueError(f"form {form} does not fit {count} entries")
    indices, values = np.empty(0, np.uint32), np.empty(0, np.int32)
    if count:
        indices = _read_indices(reader, form & ~_PLAIN, size, count)
        values = read_plain(reader, count) if form & _PLAIN else read_levels(reader, count)
    reader.end()
    return SparseDelta(size, indices, values)


def _write_indices(delta: SparseDelta) -> tuple[int, bytes]:
    if delta.dense:
        return _DENSE, b""
    gaps = gaps_of(delta.indices)
    as_bytes, rice = write_byte_gaps(gaps), Rice(gaps)
    return (_RICE, rice.write()) if rice.about_bytes < _RICE_WORTH_IT * len(as_bytes) else (_BYTES, as_bytes)


def _read_indices(reader: SectionReader, form: int, size: int, count: int) -> Indices:
    if form == _DENSE:
        return np.arange(size, dtype=np.uint32)
    return (read_rice if form == _RICE else read_byte_gaps)(reader, count, size)
