"""Many small numbers in few bytes, little end first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 16  # numbers handled at a time; a multiple of 8, so that blocks end on whole bytes

Numbers = npt.NDArray[np.uint32]


def packed_bytes(count: int, width: int) -> int:
    """How many bytes `count` numbers of `width` bits take."""
    return (count * width + 7) // 8


def pack(numbers: Numbers, width: int) -> bytes:
    """The low `width` bits (0 to 32) of each number, one after the other."""
    if width == 0:
        return b""
    lanes = 1 if width <= 8 else 4
    parts = []
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK].astype("<u4")
        cells = block.astype(np.uint8) if lanes == 1 else block.view(np.uint8)
        bits = np.unpackbits(cells.reshape(-1, lanes), axis=1, bitorder="little")[:, :width]
        parts.append(np.packbits(bits, bitorder="little").tobytes())
    return b"".join(parts)


def unpack(data: bytes, count: int, width: int) -> Numbers:
    """What `pack` packed; ValueError when `data` is not exactly that long."""
    if len(data) != packed_bytes(count, width):
        raise ValueError(f"{len(data)} bytes for {count} numbers of {width} bits")
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
