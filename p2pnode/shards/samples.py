"""Encodes the samples of a shard as bytes, and decodes them after checking types, shapes and the shard's id."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..wire.types import decoded
from .shard import Columns, columns_id

MAGIC = b"p2pnode samples 1\0"
MAX_SHARD_BYTES = 8 << 20
MAX_HEADER_BYTES = 4096
KINDS = "biuf"  # numpy's letters for booleans, integers and floats
_LENGTH = struct.Struct(">I")
_ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARD_BYTES)]
_Shape = Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1, max_length=8)]
_Header = Annotated[list[tuple[_ShortText, _ShortText, _Shape]], msgspec.Meta(min_length=1, max_length=32)]
_decoder: msgspec.msgpack.Decoder[list[tuple[str, str, tuple[int, ...]]]] = msgspec.msgpack.Decoder(_Header)


class SampleColumn(NamedTuple):
    """The type and shape of one sample in a column."""

    kind: str  # numpy's name of the type, little-endian
    shape: tuple[int, ...]

    @property
    def sample_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.kind).itemsize


SampleLayout = Mapping[str, SampleColumn]


def sample_layout(columns: Columns) -> dict[str, SampleColumn]:
    """The type and shape of each column, whatever the number of samples."""
    return {name: SampleColumn(_kind(column), tuple(column.shape[1:])) for name, column in columns.items()}


def encode_samples(columns: Columns) -> bytes:
    """All rows of some columns as bytes; ValueError when they are too large or of a type that cannot travel."""
    parts, header = [], []
    for name in sorted(columns):
        column = columns[name]
        if column.dtype.kind not in KINDS:
            raise ValueError(f"column {name!r} is of type {column.dtype}; only numbers travel")
        header.append((name, _kind(column), column.shape))
        parts.append(np.ascontiguousarray(column.astype(_kind(column), copy=False)).tobytes())
    head = msgspec.msgpack.encode(header)
    data = b"".join([MAGIC, _LENGTH.pack(len(head)), head, *parts])
    if len(data) > MAX_SHARD_BYTES:
        raise ValueError(f"a shard of {len(data):,} bytes; {MAX_SHARD_BYTES:,} are allowed")
    return data


def decode_samples(data: bytes, layout: SampleLayout, shard: str) -> dict[str, NDArray[Any]]:
    """The columns in `data`, read-only and not copied. ValueError unless they have this layout and are this shard."""
    header, place = _header(data)
    _check_layout(header, layout)
    columns: dict[str, NDArray[Any]] = {}
    for name, kind, shape in header:
        size = shape[0] * layout[name].sample_bytes
        columns[name] = np.frombuffer(data, kind, size // np.dtype(kind).itemsize, place).reshape(shape)
        place += size
    if columns_id(columns) != shard:
        raise ValueError("the content is not that of the shard")
    return columns


def count_samples(data: bytes) -> int:
    """The number of samples in encoded bytes; ValueError when they are malformed."""
    return _header(data)[0][0][2][0]


def _header(data: bytes) -> tuple[list[tuple[str, str, tuple[int, ...]]], int]:
    """The header of encoded bytes, and where the samples begin; ValueError when it is malformed."""
    if len(data) > MAX_SHARD_BYTES:
        raise ValueError(f"a shard of {len(data):,} bytes; {MAX_SHARD_BYTES:,} are allowed")
    place = len(MAGIC) + _LENGTH.size
    if not data.startswith(MAGIC) or len(data) < place:
        raise ValueError("not the samples of a shard")
    end = place + _LENGTH.unpack_from(data, len(MAGIC))[0]
    if end - place > MAX_HEADER_BYTES or end > len(data):
        raise ValueError("the samples' header is cut off or too long")
    header = decoded(_decoder, data[place:end], "samples")
    _check_size(header, len(data) - end)
    return header, end


def _check_size(header: list[tuple[str, str, tuple[int, ...]]], there: int) -> None:
    if [name for name, _, _ in header] != sorted({name for name, _, _ in header}):
        raise ValueError("columns are named twice or out of order")
    if len({shape[0] for _, _, shape in header}) != 1 or header[0][2][0] == 0:
        raise ValueError("columns of different length, or without samples")
    size = 0
    for name, kind, shape in header:
        if kind not in _KNOWN:
            raise ValueError(f"column {name!r} is of a type that does not travel")
        size += shape[0] * SampleColumn(kind, shape[1:]).sample_bytes
    if size != there:
        raise ValueError(f"{there:,} bytes of samples where {size:,} were announced")


def _check_layout(header: list[tuple[str, str, tuple[int, ...]]], layout: SampleLayout) -> None:
    found = {name: SampleColumn(kind, shape[1:]) for name, kind, shape in header}
    if found != dict(layout):
        raise ValueError("samples of another shape than the run's")


def _kind(column: NDArray[np.generic]) -> str:
    return column.dtype.newbyteorder("<").str


_KNOWN = {
    np.dtype(kind).newbyteorder("<").str
    for kind in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
}
