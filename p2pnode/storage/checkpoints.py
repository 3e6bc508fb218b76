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

from ..wire.errors import LocalProblem
from .files import Part, Storage

MAGIC = b"p2pnode state 3\0"
DIGEST_BYTES = 32
SLOTS = (0, 1)
STATES = 3  # on disk at the most: two, and one being written
_GENERATION = "generation"
_LENGTH = struct.Struct(">I")
_RECORD = struct.Struct(">I8s")  # length, beginning of the content's hash

Arrays = dict[str, npt.NDArray[Any]]


class Progress:
    """The saved progress of one model of one run. Contract: `load` once, before the first `save` or `note`.

    `max_bytes` bounds the folder of all runs. What was published and could not be noted leaves a gap after the state:
    whoever goes on from it must begin a new log, since others may know more of the old one.
    """

    def __init__(self, storage: Storage, directory: str, max_bytes: int | None = None) -> None:
        self._storage = storage
        self._max_bytes = max_bytes
        self._directory = directory
        self._slot = 0
        self._generation = 0
        self._journals = [0, 0]  # bytes
        self._before_gap: set[int] = set()  # slots whose state a gap follows
        self.state_bytes = 0  # of the newest; 0: there is none
        self.damaged = False  # a state was there and could not be read
        self.gap = False  # something published after the state was not noted

    def save(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Make `arrays` the state and begin a new journal; the old ones become the generation before."""
        slot, generation = 1 - self._slot, self._generation + 1
        parts = pack_arrays({**arrays, _GENERATION: np.array([generation], np.int64)})
        size = sum(map(len, parts))
        if self._room(size) < 0:
            raise LocalProblem(f"{STATES} states of {size:,} bytes are more than --max-disk allows; allow more")
        self._storage.delete(self._journal(slot))
        self._storage.write(self._state(slot), *parts)
        if slot in self._before_gap:
            self._storage.delete(self._gap(slot))
            self._before_gap.remove(slot)
        self._slot, self._generation, self._journals[slot] = slot, generation, 0
        self.state_bytes, self.gap = size, False

    def note(self, entry: bytes) -> None:
        """Put something into the journal; when this returns, it is durable. LocalProblem: there is a gap now."""
        if not self.state_bytes or self.gap:
            return  # nothing that it could follow: the next start begins a new log anyway
        record = _RECORD.pack(len(entry), blake3(entry).digest(8)) + entry
        try:
            if sum(self._journals) + len(record) > self._room(self.state_bytes):
                raise LocalProblem("the journal has no room left within --max-disk; allow more")
            self._storage.append(self._journal(self._slot), record)
        except LocalProblem:
            self.gap = True
            self._before_gap.add(self._slot)
            self._storage.move(self._state(self._slot), self._gap(self._slot))  # needs no space
            raise
        self._journals[self._slot] += len(record)

    @property
    def due(self) -> bool:
        """Whether the journal has grown so long that it is time to save; a disk that cannot tell brings no hurry."""
        try:
            return self._journals[self._slot] > min(self.state_bytes, self._room(self.state_bytes) // 3)
        except LocalProblem:
            return False

    def _room(self, state_bytes: int) -> int:
        """What `max_bytes` leaves for journals beside states of this size."""
        if self._max_bytes is None:
            return 1 << 62
        runs = self._directory.partition("/")[0]
        elsewhere = self._storage.used(runs) - self._storage.used(self._directory)
        return self._max_bytes - elsewhere - STATES * state_bytes

    def load(self) -> tuple[Arrays, list[bytes]] | None:
        """The newest whole state and what was noted since; None when there is none. `damaged` tells of a fallback."""
        found = {slot: self._read_state(slot) for slot in SLOTS}
        whole = {slot: arrays for slot, arrays in found.items() if arrays is not None}
        if not whole:
            return None
        slot = max(whole, key=lambda slot: int(whole[slot][_GENERATION][0]))
        arrays = whole[slot]
        self._slot, self._generation = slot, int(arrays.pop(_GENERATION)[0])
        self.state_bytes = sum(array.nbytes for array in arrays.values())
        self.gap = slot in self._before_gap or (self.damaged and bool(self._before_gap))
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

    def _gap(self, slot: int) -> str:
        """The name of a state that a gap follows."""
        return f"{self._directory}/gap.{slot}"

    def _journal(self, slot: int) -> str:
        return f"{self._directory}/journal.{slot}"

    def _read_state(self, slot: int) -> Arrays | None:
        data = self._storage.read(self._state(slot))
        if data is None:
            data = self._storage.read(self._gap(slot))
            self._before_gap |= set() if data is None else {slot}
        arrays = None if data is None else unpack_arrays(data)
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
        self._journals[slot] = place
        return entries


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Part]:
    """Arrays as parts of a file, without a copy of them; the last part is a hash over the others."""
    header = msgspec.msgpack.encode([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
    parts: list[Part] = [MAGIC + _LENGTH.pack(len(header)) + header]
    parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    digest = blake3()
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()]


def unpack_arrays(data: bytes) -> Arrays | None:
    """The arrays, or None when anything about them is damaged."""
    content, place = memoryview(data)[:-DIGEST_BYTES], len(MAGIC) + _LENGTH.size
    if not data.startswith(MAGIC) or blake3(content).digest() != data[-DIGEST_BYTES:]:
        return None
    end = place + _LENGTH.unpack_from(data, len(MAGIC))[0]
    header = msgspec.msgpack.decode(content[place:end], type=list[tuple[str, str, tuple[int, ...]]])
    arrays: Arrays = {}
    for name, dtype, shape in header:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[name] = np.frombuffer(content[end : end + size], dtype).reshape(shape).copy()
        end += size
    return arrays
