"""What a node has learned, on disk: its state whole or not there, and a journal of what it published since.

Two generations are kept: a damaged newest one falls back on the one before, whose journal still leads up to now.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from .storage import Storage

MAGIC = b"p2pnode state 1\0"
DIGEST_BYTES = 32
_RECORD = struct.Struct(">I8s")  # length, beginning of the content's hash

Arrays = dict[str, npt.NDArray[Any]]


class Progress:
    """The saved progress of one model of one run."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._state = f"{directory}/state"
        self._journal = f"{directory}/journal"
        self.damaged = False

    def save(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Make `arrays` the state and begin a new journal; the old ones become the generation before."""
        self._storage.move(self._journal, f"{self._journal}.before")
        self._storage.move(self._state, f"{self._state}.before")
        self._storage.write(self._state, pack(arrays))

    def note(self, entry: bytes) -> None:
        """Put something into the journal; when this returns, it is durable."""
        self._storage.append(self._journal, _RECORD.pack(len(entry), blake3(entry).digest(8)) + entry)

    def load(self) -> tuple[Arrays, list[bytes]] | None:
        """The newest whole state and what was noted since; None when there is none. `damaged` tells of a fallback."""
        for name, journals in (
            (self._state, [self._journal]),
            (f"{self._state}.before", [f"{self._journal}.before", self._journal]),
        ):
            data = self._storage.read(name)
            arrays = None if data is None else unpack(data)
            if arrays is not None:
                return arrays, [entry for journal in journals for entry in self._read_journal(journal)]
            self.damaged |= data is not None
        return None

    def _read_journal(self, name: str) -> list[bytes]:
        """The journal's entries up to the first torn one."""
        data = self._storage.read(name) or b""
        entries, place = [], 0
        while place + _RECORD.size <= len(data):
            length, digest = _RECORD.unpack_from(data, place)
            entry = data[place + _RECORD.size : place + _RECORD.size + length]
            if len(entry) != length or blake3(entry).digest(8) != digest:
                break
            entries.append(entry)
            place += _RECORD.size + length
        return entries


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays as bytes with a hash over them."""
    content = msgspec.msgpack.encode(
        {name: (array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()) for name, array in arrays.items()}
    )
    return MAGIC + blake3(content).digest() + content


def unpack(data: bytes) -> Arrays | None:
    """The arrays, or None when anything about them is damaged."""
    head = len(MAGIC) + DIGEST_BYTES
    if not data.startswith(MAGIC) or blake3(data[head:]).digest() != data[len(MAGIC) : head]:
        return None
    packed = msgspec.msgpack.decode(data[head:], type=dict[str, tuple[str, tuple[int, ...], bytes]])
    return {name: np.frombuffer(raw, dtype).reshape(shape).copy() for name, (dtype, shape, raw) in packed.items()}
