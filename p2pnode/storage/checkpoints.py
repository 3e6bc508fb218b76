"""Checkpoints: a model's saved state, and a journal of what the node published after it.

Two slots are written in turn; each has a state and the journal of what came after it. A save fills the slot that is not
in use, so at any moment one complete state and everything published after it are on disk. If the newer state is
damaged, the older one is used: its journal and the newer one's lead up to now.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from ..wire.errors import Damaged, LocalProblem
from .checked import SET_ASIDE, read_or_set_aside, set_aside, write_checked
from .files import Part, Storage

MAGIC = b"p2pnode state 3\0"
DIGEST_BYTES = 32
SLOTS = (0, 1)
STATES = 3  # on disk at most: two, and one that is being written
FAR_INCARNATIONS = range(256, 768)  # to draw from when the last number used is not known
_GENERATION = "generation"
_LENGTH = struct.Struct(">I")
_RECORD = struct.Struct(">I8s")  # length, beginning of the content's hash

Arrays = dict[str, npt.NDArray[Any]]  # a saved state: arrays by name


class CheckpointStore:
    """The checkpoints of one model of one run. Call `load` once, before the first `save` or `note`.

    `max_bytes` bounds the folder of all runs. If something was published but could not be noted, a gap follows the
    state: a node that goes on from it must begin a new log, since others may know more of the old one.
    """

    def __init__(self, storage: Storage, directory: str, max_bytes: int | None = None) -> None:
        self._storage = storage
        self._max_bytes = max_bytes
        self._directory = directory
        self._slot = 0
        self._generation = 0
        self._journals = [0, 0]  # bytes
        self._before_gap: set[int] = set()  # slots whose state is followed by a gap
        self.state_bytes = 0  # of the latest state; 0: there is none
        self._damaged: list[int] = []  # slots whose state exists and cannot be read
        self._torn: list[int] = []  # slots whose journal is damaged
        self.gap = False  # something published after the state was not noted

    def save(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Writes `arrays` as the new state and begins a new journal. LocalProblem when there is no room."""
        slot, generation = 1 - self._slot, self._generation + 1
        parts = pack_arrays({**arrays, _GENERATION: np.array([generation], np.int64)})
        size = sum(map(len, parts))
        if self._room(size) < 0:
            raise LocalProblem(f"{STATES} states of {size:,} bytes exceed --max-disk; allow more")
        self._storage.delete(self._journal(slot))
        self._storage.write(self._state(slot), *parts)
        if slot in self._before_gap:
            self._storage.delete(self._gap(slot))
            self._before_gap.remove(slot)
        self._slot, self._generation, self._journals[slot] = slot, generation, 0
        self.state_bytes, self.gap = size, False

    def note(self, entry: bytes) -> None:
        """Adds an entry to the journal; it is durable when this returns. After a LocalProblem there is a gap."""
        if not self.state_bytes or self.gap:
            return  # there is no state that it could follow: the next start begins a new log anyway
        record = _record(entry)
        try:
            if sum(self._journals) + len(record) > self._room(self.state_bytes):
                raise LocalProblem("the journal has no room left within --max-disk; allow more")
            self._storage.append(self._journal(self._slot), record)
        except LocalProblem:
            self.gap = True
            self._before_gap.add(self._slot)
            self._storage.move(self._state(self._slot), self._gap(self._slot))  # renaming needs no space
            raise
        self._journals[self._slot] += len(record)

    @property
    def damaged(self) -> bool:
        """Whether a state exists that could not be read."""
        return bool(self._damaged)

    @property
    def due(self) -> bool:
        """Whether the journal is so long that it is time to save. False when the disk cannot tell."""
        try:
            return self._journals[self._slot] > min(self.state_bytes, self._room(self.state_bytes) // 3)
        except LocalProblem:
            return False

    def _room(self, state_bytes: int) -> int:
        """The bytes that `max_bytes` leaves for journals, with states of this size."""
        if self._max_bytes is None:
            return 1 << 62
        runs = self._directory.partition("/")[0]
        elsewhere = self._storage.used(runs) - self._storage.used(self._directory)
        return self._max_bytes - elsewhere - STATES * state_bytes

    def load(self) -> tuple[Arrays, list[bytes]] | None:
        """The latest complete state and the journal since; None when there is none. Sets `damaged` and `gap`.

        Damaged files are set aside and reported. `peek` finds the same and changes nothing.
        """
        found = self.peek()
        if found is not None and self.gap and self._slot not in self._before_gap:
            self._storage.move(self._state(self._slot), self._gap(self._slot))  # also for the start after a crash now
            self._before_gap.add(self._slot)
        for slot in self._damaged:
            name = self._gap(slot) if slot in self._before_gap else self._state(slot)
            lost = "the state saved before it is used" if found else "no other state is there"
            set_aside(self._storage, name, f"{self._storage.path(name)} is damaged", lost)
            self._before_gap.discard(slot)
        if found is None and self._damaged:
            self.set_all_aside("follows a damaged state")
        self._tidy_journals(None if found is None else found[1])
        return found

    def peek(self) -> tuple[Arrays, list[bytes]] | None:
        """What `load` returns."""
        found = {slot: self._read_state(slot) for slot in SLOTS}
        whole = {slot: arrays for slot, arrays in found.items() if arrays is not None}
        if not whole:
            return None
        slot = max(whole, key=lambda slot: int(whole[slot][_GENERATION][0]))
        arrays = whole[slot]
        self._slot, self._generation = slot, int(arrays.pop(_GENERATION)[0])
        self.state_bytes = sum(array.nbytes for array in arrays.values())
        journal = self._read_journal(slot)
        if self.damaged:  # the damaged state may be the newer one: its journal follows
            journal += self._read_journal(1 - slot)
            self._generation += 1  # so that the next state is newer than both
        self.gap = slot in self._before_gap or (self.damaged and bool(self._before_gap)) or bool(self._torn)
        return arrays, journal

    def set_all_aside(self, reason: str) -> None:
        """Rename files that cannot be used, so that what is saved next does not overwrite them."""
        for name in self._storage.names(self._directory):
            if name.startswith(("state.", "gap.", "journal.")) and SET_ASIDE not in name:
                whole = f"{self._directory}/{name}"
                set_aside(self._storage, whole, f"{self._storage.path(whole)} {reason}", "starting without it")
        self._before_gap.clear()
        self.state_bytes = 0

    def next_incarnation(self) -> int:
        """A number for a new log, to be used when there is no state to go on from: 0, then 1, and so on.

        It is kept in its own file, so that a node that lost its state never signs the numbers of old entries again.
        """
        name, before = f"{self._directory}/incarnation", len(self._storage.warnings)
        number = read_or_set_aside(self._storage, name, int, "a number far from the old ones is drawn for the next log")
        if len(self._storage.warnings) > before:
            number = secrets.choice(FAR_INCARNATIONS)
        write_checked(self._storage, name, str((number or 0) + 1).encode())
        return number or 0

    def _state(self, slot: int) -> str:
        return f"{self._directory}/state.{slot}"

    def _gap(self, slot: int) -> str:
        """The file of a state that is followed by a gap."""
        return f"{self._directory}/gap.{slot}"

    def _journal(self, slot: int) -> str:
        return f"{self._directory}/journal.{slot}"

    def _read_state(self, slot: int) -> Arrays | None:
        try:
            data = self._storage.read(self._state(slot))
            if data is None:
                data = self._storage.read(self._gap(slot))
                self._before_gap |= set() if data is None else {slot}
            arrays = None if data is None else unpack_arrays(data)
            broken = data is not None and (arrays is None or _GENERATION not in arrays)
        except Damaged:
            arrays, broken = None, True
        if broken:
            self._damaged.append(slot)
        return None if broken else arrays

    def _read_journal(self, slot: int) -> list[bytes]:
        """The entries up to the first damaged one. What follows it may be known to others: there is a gap."""
        try:
            data = self._storage.read(self._journal(slot))
        except Damaged:
            data = b""
        if data is None:
            return []
        entries, place = [], 0
        while place + _RECORD.size <= len(data):
            length, digest = _RECORD.unpack_from(data, place)
            entry = data[place + _RECORD.size : place + _RECORD.size + length]
            if len(entry) != length or blake3(entry).digest(8) != digest:
                break
            entries.append(entry)
            place += _RECORD.size + length
        if place < len(data) or not data:
            self._torn.append(slot)
        self._journals[slot] = place
        return entries

    def _tidy_journals(self, entries: list[bytes] | None) -> None:
        """Set damaged journals aside. After damage the state in use gets the whole journal: no other matters then."""
        for slot in SLOTS:
            name = self._journal(slot)
            lost = "what this node published after the damage is not known, so it begins a new log"
            if slot in self._torn:
                set_aside(self._storage, name, f"{self._storage.path(name)} is damaged", lost)
            elif slot != self._slot and self._is_directory(name):
                set_aside(self._storage, name, f"{self._storage.path(name)} is a directory", "it was not needed")
        if entries is not None and (self._damaged or self._torn):
            records = [_record(entry) for entry in entries]
            if records:
                self._storage.write(self._journal(self._slot), *records)
            else:
                self._storage.delete(self._journal(self._slot))
            self._storage.delete(self._journal(1 - self._slot))
            self._journals = [0, 0]
            self._journals[self._slot] = sum(map(len, records))

    def _is_directory(self, name: str) -> bool:
        try:
            self._storage.read(name)
        except Damaged:
            return True
        return False


def _record(entry: bytes) -> bytes:
    return _RECORD.pack(len(entry), blake3(entry).digest(8)) + entry


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Part]:
    """Arrays as parts of a file, without copying them. The last part is a hash of the others."""
    header = msgspec.msgpack.encode([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
    parts: list[Part] = [MAGIC + _LENGTH.pack(len(header)) + header]
    parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    digest = blake3()
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()]


def unpack_arrays(data: bytes) -> Arrays | None:
    """The arrays, or None when anything is damaged."""
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
