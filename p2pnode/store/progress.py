"""What a node has learned, on disk: its state whole or not there, and a journal of what it published since.

Two slots are written in turn, each a state and the journal of what came after it. A save fills the slot that is not in
use, so that at any instant one whole state and everything published after it are there. A damaged newest state falls
back on the one before, whose journal and the newest one's lead up to now.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from ..errors import LocalProblem
from .storage import Storage

MAGIC = b"p2pnode state 2\0"
DIGEST_BYTES = 32
SLOTS = (0, 1)
_GENERATION = "generation"
_RECORD = struct.Struct(">I8s")  # length, beginning of the content's hash

Arrays = dict[str, npt.NDArray[Any]]


class Progress:
    """The saved progress of one model of one run. Contract: `load` once, before the first `save` or `note`."""

    def __init__(self, storage: Storage, directory: str, max_bytes: int | None = None) -> None:
        self._storage = storage
        self._max_bytes = max_bytes
        self._directory = directory
        self._slot = 0
        self._generation = 0
        self.damaged = False  # a state was there and could not be read

    def save(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Make `arrays` the state and begin a new journal; the old ones become the generation before."""
        slot, generation = 1 - self._slot, self._generation + 1
        data = pack({**arrays, _GENERATION: np.array([generation], np.int64)})
        if self._max_bytes is not None and 2 * len(data) > self._max_bytes:
            raise LocalProblem(f"two states of {len(data):,} bytes are more than --max-disk allows; allow more")
        self._storage.delete(self._journal(slot))
        self._storage.write(self._state(slot), data)
        self._slot, self._generation = slot, generation

    def note(self, entry: bytes) -> None:
        """Put something into the journal; when this returns, it is durable."""
        self._storage.append(self._journal(self._slot), _RECORD.pack(len(entry), blake3(entry).digest(8)) + entry)

    def load(self) -> tuple[Arrays, list[bytes]] | None:
        """The newest whole state and what was noted since; None when there is none. `damaged` tells of a fallback."""
        found = {slot: self._read_state(slot) for slot in SLOTS}
        whole = {slot: arrays for slot, arrays in found.items() if arrays is not None}
        if not whole:
            return None
        slot = max(whole, key=lambda slot: int(whole[slot][_GENERATION][0]))
        arrays = whole[slot]
        self._slot, self._generation = slot, int(arrays.pop(_GENERATION)[0])
        journal = self._read_journal(slot)
        if self.damaged:  # if the damaged state was the newer one, what was noted after it follows
            journal += self._read_journal(1 - slot)
            self._generation += 1  # whatever comes now is newer than both
        return arrays, journal

    def begin_anew(self) -> int:
        """How often this log has begun before; to be asked when there is no state to go on from.

        Counted in a file of its own, so that a node which lost its state does not sign its old entries' numbers again.
        """
        name = f"{self._directory}/incarnation"
        text = (self._storage.read(name) or b"0").decode(errors="replace").strip()
        number = int(text) if text.isdecimal() else 0
        self._storage.write(name, f"{number + 1}\n".encode())
        return number

    def _state(self, slot: int) -> str:
        return f"{self._directory}/state.{slot}"

    def _journal(self, slot: int) -> str:
        return f"{self._directory}/journal.{slot}"

    def _read_state(self, slot: int) -> Arrays | None:
        data = self._storage.read(self._state(slot))
        arrays = None if data is None else unpack(data)
        self.damaged |= data is not None and arrays is None
        return arrays if arrays is not None and _GENERATION in arrays else None

    def _read_journal(self, slot: int) -> list[bytes]:
        """The journal's entries up to the first torn one, which is cut off, so that what follows can be read again."""
        name = self._journal(slot)
        data = self._storage.read(name) or b""
        entries, place = [], 0
        while place + _RECORD.size <= len(data):
            length, digest = _RECORD.unpack_from(data, place)
            entry = data[place + _RECORD.size : place + _RECORD.size + length]
            if len(entry) != length or blake3(entry).digest(8) != digest:
                break
            entries.append(entry)
            place += _RECORD.size + length
        if place < len(data):
            self._storage.write(name, data[:place])
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
