"""Sign entries: one bit for every coordinate and one scale a tensor, the second wire format of a delta. Pure.

    payload   version u8 (3) · size, tensors (varints) · length and scale of each tensor (varints) · a bit for every
              coordinate, 1 for minus · CRC-32 of all that, u32

Where an optimizer changes all coordinates by about as much (Muon), their signs hold most of what a round learned: 1 bit
a coordinate is better than 2 bits for the few largest and their places. The scale of a tensor is the mean magnitude.
As for the first format (codec.py), the decoder knows or bounds every length before it allocates memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .codec import with_checksum
from .delta import Indices, SparseDelta
from .sections import SectionReader, varint
from .weights import MAX_UNITS, Units

VERSION = 3
MAX_TENSORS = 1 << 16
MOST = 1 << 24  # coordinates; with more a message would not fit into a call
_CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class SignCut:
    """Signs and scales that are taken out of a residual. Levels + what `leave` leaves = what was there, exactly."""

    layers: tuple[int, ...]
    negative: np.ndarray  # bool, one for each coordinate
    scales: tuple[int, ...]  # units, one for each layer

    def delta(self, weight: float) -> SparseDelta:
        """What is sent of it, with this weight: the scales are rounded to the grid."""
        if not 0.0 < weight < float("inf"):
            raise ValueError(f"weight {weight} is not a positive number")
        scaled = np.clip(np.rint(np.array(self.scales) * weight), 0, MAX_UNITS).astype(np.int32)
        return _expanded(self.layers, scaled, self.negative)

    def leave(self, residual: Units) -> None:
        """Takes the levels out of the residual, in place."""
        residual -= _expanded(self.layers, np.array(self.scales, np.int32), self.negative).values


def take_signs(residual: Units, layers: Sequence[int]) -> SignCut:
    """The signs of a residual, and the mean magnitude of each layer."""
    starts = np.cumsum([0, *layers[:-1]])
    sums = np.add.reduceat(np.abs(residual).astype(np.int64), starts)
    scales = tuple(int(total) // count for total, count in zip(sums, layers, strict=True))
    return SignCut(tuple(layers), residual < 0, scales)


def encode_signs(delta: SparseDelta, layers: Sequence[int]) -> bytes:
    """A delta whose values have one magnitude a layer as bytes; ValueError for any other."""
    if not delta.dense or sum(layers) != delta.size or len(layers) > MAX_TENSORS or min(layers) < 1:
        raise ValueError("not one value for every coordinate of these layers")
    negative = delta.values < 0
    scales = np.abs(delta.values[np.cumsum([0, *layers[:-1]])])
    if not np.array_equal(np.abs(delta.values), np.repeat(scales, layers)):
        raise ValueError("a layer with several magnitudes")
    tensors = [varint(count) + varint(int(scale)) for count, scale in zip(layers, scales, strict=True)]
    head = bytes([VERSION]) + varint(delta.size) + varint(len(layers))
    return with_checksum(b"".join([head, *tensors, np.packbits(negative).tobytes()]))


def is_signs(data: bytes) -> bool:
    """Whether a payload says that it has this format."""
    return data[:1] == bytes([VERSION])


def decode_signs(data: bytes, size: int) -> SparseDelta:
    """The delta in `data`, of `size` coordinates; ValueError otherwise."""
    if not is_signs(data):
        raise ValueError("not a payload of signs")
    body = data[:-_CHECKSUM_BYTES]
    if len(data) <= _CHECKSUM_BYTES or zlib.crc32(body) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
        raise ValueError("damaged or truncated: the checksum does not match")
    reader = SectionReader(body[1:])
    stated, count = reader.varint(), reader.varint()
    if stated != size:
        raise ValueError(f"a delta of {stated} coordinates; the model has {size}")
    if not 1 <= count <= min(size, MAX_TENSORS):
        raise ValueError(f"{count} tensors in {size} coordinates")
    tensors = [(reader.varint(), reader.varint()) for _ in range(count)]
    if sum(length for length, _ in tensors) != size or min(length for length, _ in tensors) < 1:
        raise ValueError("the tensors do not add up to the model")
    if max(scale for _, scale in tensors) > MAX_UNITS:
        raise ValueError(f"a scale beyond {MAX_UNITS} units")
    bits = np.frombuffer(reader.take(-(-size // 8)), np.uint8)
    reader.end()
    if size % 8 and bits[-1] & (0xFF >> size % 8):
        raise ValueError("bits beyond the last coordinate")
    scales = np.array([scale for _, scale in tensors], np.int32)
    return _expanded([length for length, _ in tensors], scales, np.unpackbits(bits, count=size).astype(bool))


def _expanded(layers: Sequence[int], scales: Units, negative: np.ndarray) -> SparseDelta:
    values = np.repeat(np.asarray(scales, np.int32), layers)
    values *= np.int32(1) - 2 * negative.view(np.int8)  # several times as fast as negating where a bit is set
    return SparseDelta(len(values), _all_places(len(values)), values)


@lru_cache(maxsize=2)
def _all_places(count: int) -> Indices:
    return np.arange(count, dtype=np.uint32)
