"""The disk of a simulated machine, and what one process sees of it: full, slow, torn, rotten, or set back in time.

The machine's disk outlives its processes. What `write` and `append` return from is durable, as on a real disk after
fsync. Renames and deletions are durable once their folder was synced, which the next write there does: until then a
loss of power may undo them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ..storage.files import MemoryStorage, Part
from ..wire.errors import LocalProblem
from ..wire.types import Seconds

_Undo = list[tuple[str, bytes | None]]  # names, and what they were before an operation


class SimDisk(MemoryStorage):
    """A machine's disk. Faults are methods and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self._unsynced: dict[str, list[_Undo]] = {}  # by folder, in order
        self._images: dict[float, dict[str, bytes]] = {}

    def write(self, name: str, *parts: Part) -> None:
        if self.full:
            raise _no_room(name)
        super().write(name, *parts)
        self._unsynced.pop(_folder(name), None)

    def append(self, name: str, data: bytes) -> None:
        if self.full:
            super().append(name, data[: len(data) // 2])
            raise _no_room(name)
        super().append(name, data)

    def move(self, name: str, target: str) -> None:
        if name in self._files:
            self._note(target, [(target, self._files.get(target)), (name, self._files[name])])
        super().move(name, target)

    def delete(self, name: str) -> None:
        if name in self._files:
            self._note(name, [(name, self._files[name])])
        super().delete(name)

    def _note(self, name: str, undo: _Undo) -> None:
        self._unsynced.setdefault(_folder(name), []).append(undo)

    def total(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self._files.values()))

    # ---- faults ----

    def lose_power(self, rng: random.Random) -> None:
        """Undo some of the last renames and deletions that were not synced."""
        for undos in self._unsynced.values():
            for _ in range(rng.randint(0, len(undos))):
                for name, content in undos.pop():
                    self._put(name, content)
        self._unsynced.clear()

    def rot(self, place: float) -> str:
        """Flip one bit; `place` between 0 and 1 says where. Returns the name of the file, "" if there is none."""
        names = sorted(name for name, content in self._files.items() if content)
        if not names:
            return ""
        rng = random.Random(place)
        name = rng.choice(names)
        content = bytearray(self._files[name])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        self._files[name] = bytes(content)
        return name

    def remember(self, moment: Seconds) -> None:
        """Keep an image of the disk as it is now."""
        self._images[moment] = dict(self._files)

    def return_to(self, moment: Seconds) -> None:
        """Put an image back that `remember` took."""
        if moment in self._images:
            self._files = self._images.pop(moment)
            self._unsynced.clear()

    def _put(self, name: str, content: bytes | None) -> None:
        if content is None:
            self._files.pop(name, None)
        else:
            self._files[name] = content


class ProcessDisk:
    """A disk as one process sees it: after its end nothing it writes reaches the disk.

    `delayed` is called with the seconds that an operation takes. With `dies_in` set, the process ends before that many
    operations from now are done, and `die` is called.
    """

    def __init__(self, disk: SimDisk, die: Callable[[], None], delayed: Callable[[Seconds], None]) -> None:
        self._disk = disk
        self._die = die
        self._delayed = delayed
        self.gone = False
        self.dies_in = 0  # 0: it does not
        self.slowness: Seconds = 0.0
        self.warnings: list[str] = []

    def path(self, name: str) -> str:
        return self._disk.path(name)

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)

    def write(self, name: str, *parts: Part) -> None:
        if self._goes_on():
            self._disk.write(name, *parts)

    def append(self, name: str, data: bytes) -> None:
        if self._goes_on(lambda: self._disk.append(name, data[: len(data) // 2])):
            self._disk.append(name, data)

    def move(self, name: str, target: str) -> None:
        if self._goes_on():
            self._disk.move(name, target)

    def delete(self, name: str) -> None:
        if self._goes_on():
            self._disk.delete(name)

    def used(self, folder: str) -> int:
        return self._disk.used(folder)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)

    def _goes_on(self, torn: Callable[[], None] = lambda: None) -> bool:
        """Whether the next operation reaches the disk. CancelledError where the process ends here."""
        if self.gone:
            return False
        if self.slowness:
            self._delayed(self.slowness)
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                torn()
                self._die()
                raise asyncio.CancelledError("the process ends here")
        return True


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _no_room(name: str) -> LocalProblem:
    return LocalProblem(f"{name}: No space left on device; check the disk and the permissions")
