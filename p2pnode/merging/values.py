"""The values that plain policies send, at 32, 16, 8 or 4 bits; decoders trust nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..compression.codec import decode_delta, encode_delta
from ..compression.delta import Indices, SparseDelta
from ..compression.weights import Floats
from ..wire.types import decoded

BITS = (32, 16, 8, 4)
_LARGEST = 128.0  # bound on every value: twice that of the grid
_OVERHEAD = 4096
_BLOCK = 256
_counts_decoder = msgspec.json.Decoder(dict[str, int])


def encode_values(values: Floats, bits: int) -> bytes:
    """All values at about `bits` each: as floats, or below 16 bits as even levels, scaled per block of 256."""
    if not np.isfinite(values).all():
        raise ValueError("values that are not finite numbers")
    if bits >= 16:
        return np.clip(values, -_LARGEST, _LARGEST).astype("<f4" if bits == 32 else "<f2").tobytes()
    return _encode_blocks(np.clip(values, -_LARGEST, _LARGEST), (1 << (bits - 1)) - 1)


def decode_values(data: bytes, size: int, bits: int) -> Floats:
    """The `size` values in `data`, all finite and small; ValueError before anything large is allocated."""
    if bits >= 16:
        kind = "<f4" if bits == 32 else "<f2"
        if len(data) * 8 != size * bits:
            raise ValueError(f"{len(data)} bytes for {size} values of {bits} bits")
        values: Floats = np.frombuffer(data, kind).astype(np.float32)
        if not (np.abs(values) <= _LARGEST).all():
            raise ValueError(f"a value beyond {_LARGEST}, or not a number")
        return values
    return _decode_blocks(data, size, (1 << (bits - 1)) - 1)


def _encode_blocks(values: Floats, top: int) -> bytes:
    """Scales (f4 per block), then integers within ±top, shifted to be positive; two per byte when top is 7."""
    blocks = np.zeros((-(-len(values) // _BLOCK), _BLOCK), np.float32)
    blocks.reshape(-1)[: len(values)] = values
    scales = np.abs(blocks).max(axis=1) / np.float32(top)
    numbers = np.rint(blocks / np.where(scales > 0, scales, 1)[:, None]).clip(-top, top) + (top + 1)
    codes = numbers.astype(np.uint8).reshape(-1)
    packed = codes[::2] | codes[1::2] << 4 if top == 7 else codes
    return b"".join((scales.astype("<f4").tobytes(), packed.tobytes()))


def _decode_blocks(data: bytes, size: int, top: int) -> Floats:
    count = -(-size // _BLOCK)
    due = count * (4 + (_BLOCK // 2 if top == 7 else _BLOCK))
    if len(data) != due:
        raise ValueError(f"{len(data)} bytes instead of {due}")
    scales = np.frombuffer(data, "<f4", count).astype(np.float32)
    if not ((scales >= 0) & (scales <= _LARGEST)).all():
        raise ValueError("a scale out of range, or not a number")
    packed = np.frombuffer(data, np.uint8, offset=4 * count)
    codes = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1) if top == 7 else packed
    if int(codes.min()) < 1:
        raise ValueError("a level out of range")
    numbers = codes.astype(np.float32) - np.float32(top + 1)
    values: Floats = (numbers.reshape(count, _BLOCK) * scales[:, None]).reshape(-1)[:size]
    return values


def max_bytes(size: int) -> int:
    """The maximum length of a message of `size` values."""
    return 4 * size + _OVERHEAD


def encode_places(size: int, places: Indices) -> bytes:
    """A choice of coordinates out of `size`."""
    return encode_delta(SparseDelta(size, places, np.ones(len(places), np.int32)))


def decode_places(data: bytes, size: int, limit: int) -> Indices:
    """Reads at most `limit` increasing coordinates; ValueError when there are more or they do not increase."""
    return decode_delta(data, size, limit).indices


def checked_bits(settings: Mapping[str, float], default: int) -> int:
    """The setting `bits`; ValueError for an unsupported number."""
    bits = settings.get("bits", default)
    if bits not in BITS:
        raise ValueError(f"bits {bits}; one of {BITS} is possible")
    return int(bits)


def setting(settings: Mapping[str, float], name: str, default: float, minimum: float, maximum: float) -> float:
    """A number from the settings within its bounds; ValueError otherwise."""
    value = float(settings.get(name, default))
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} {value} is not between {minimum} and {maximum}")
    return value


def pack_counts(counts: Mapping[str, int]) -> npt.NDArray[np.uint8]:
    """Numbers by peer as an array, for `state`."""
    return np.frombuffer(msgspec.json.encode(dict(counts)), np.uint8).copy()


def unpack_counts(array: npt.NDArray[Any]) -> dict[str, int]:
    """The numbers that `pack_counts` packed; ValueError for anything else."""
    return decoded(_counts_decoder, np.ascontiguousarray(array, np.uint8).tobytes(), "state")


def stored_vector(state: Mapping[str, npt.NDArray[Any]], name: str, size: int) -> Floats:
    """A vector from `state`; ValueError when it is missing, of another model or not finite."""
    found = state.get(name)
    if found is None or found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"{name} is missing, or belongs to another model")
    return found.astype(np.float32)
