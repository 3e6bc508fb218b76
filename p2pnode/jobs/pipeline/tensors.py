"""Hidden states and their gradients as bytes: each row in 8 or 4 bits with a scale of its own. Pure.

What a peer sends is checked in full before an array is made of it: the shape, the exact size, and every scale.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...compression.weights import Floats

Bits = Literal[4, 8]
LEVELS = {4: 7, 8: 127}
MAX_SCALE = 1e6  # of one level; hidden states and gradients of honest nodes are far below
_HEAD = struct.Struct("<BB")

Shape = tuple[int, ...]


def encoded_size(shape: Shape, bits: int) -> int:
    """Bytes that a tensor of this shape takes."""
    rows, width = prod(shape[:-1]), shape[-1]
    return _HEAD.size + 4 * len(shape) + rows * (4 + _row_bytes(width, bits))


def _row_bytes(width: int, bits: int) -> int:
    return width if bits == 8 else -(-width // 2)


def encode_tensor(values: Floats, bits: int) -> bytes:
    """A tensor of at least two dimensions as bytes; ValueError when a value is not finite or far too large."""
    shape = values.shape
    rows = np.ascontiguousarray(values, np.float32).reshape(-1, shape[-1])
    top = np.abs(rows).max(axis=1)
    if not np.isfinite(top).all():
        raise ValueError("a hidden state or gradient is not a finite number")
    scales = (top / np.float32(LEVELS[bits])).astype("<f4")
    if scales.size and float(scales.max()) > MAX_SCALE:
        raise ValueError("a hidden state or gradient is too large to be sent")
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > np.finfo(np.float32).tiny)
    levels = np.clip(np.rint(rows * inverse[:, None]), -LEVELS[bits], LEVELS[bits]).astype(np.int8)
    body = levels.tobytes() if bits == 8 else _packed(levels).tobytes()
    head = _HEAD.pack(bits, len(shape)) + struct.pack(f"<{len(shape)}I", *shape)
    return b"".join((head, scales.tobytes(), body))


def _packed(levels: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Two levels in a byte, the first one in its lower half."""
    moved = (levels + 8).astype(np.uint8)
    if moved.shape[1] % 2:
        moved = np.pad(moved, ((0, 0), (0, 1)))
    packed: NDArray[np.uint8] = moved[:, ::2] + moved[:, 1::2] * np.uint8(16)
    return packed


def decode_tensor(data: bytes, expected: Shape) -> Floats:
    """The tensor in `data`, which must have the `expected` shape; ValueError for anything else. A fresh array."""
    if len(data) < _HEAD.size:
        raise ValueError("a tensor without a head")
    bits, dimensions = _HEAD.unpack_from(data)
    if bits not in LEVELS or dimensions != len(expected):
        raise ValueError(f"a tensor of {bits} bits and {dimensions} dimensions, {len(expected)} expected")
    if len(data) != encoded_size(expected, bits):
        raise ValueError(f"a tensor of {len(data):,} bytes, {encoded_size(expected, bits):,} expected")
    shape = struct.unpack_from(f"<{dimensions}I", data, _HEAD.size)
    if shape != expected:
        raise ValueError(f"a tensor of shape {shape}, {expected} expected")
    start, rows, width = _HEAD.size + 4 * dimensions, prod(expected[:-1]), expected[-1]
    scales = np.frombuffer(data, "<f4", rows, start)
    if not np.isfinite(scales).all() or (rows and not 0 <= float(scales.min()) <= float(scales.max()) <= MAX_SCALE):
        raise ValueError("a tensor with a scale that is no finite number in range")
    body = np.frombuffer(data, np.uint8, offset=start + 4 * rows).reshape(rows, -1)
    levels = body.view(np.int8) if bits == 8 else _unpacked(body, width)
    found: Floats = (levels.astype(np.float32) * scales[:, None]).reshape(expected)
    return found


def _unpacked(body: NDArray[np.uint8], width: int) -> NDArray[np.int8]:
    both = np.stack([body & 15, body >> 4], axis=2).reshape(len(body), -1)[:, :width]
    levels: NDArray[np.int8] = both.astype(np.int8) - np.int8(8)
    return levels


def distance(one: Floats, other: Floats) -> float:
    """How far two tensors are apart, relative to the larger one: 0 for equal ones, 1 for unrelated or missing ones."""
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) / size if size else 0.0
