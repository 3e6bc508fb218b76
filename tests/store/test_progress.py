"""Progress on disk: whatever is cut off or damaged, one whole state and all that was published after it come back."""

from __future__ import annotations

import numpy as np
import pytest

from p2pnode.errors import LocalProblem
from p2pnode.store.progress import Progress
from p2pnode.store.storage import MemoryStorage


def state(number: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(5, number, np.int32), "rounds": np.array([number], np.int64)}


def again(storage: MemoryStorage) -> tuple[int, list[bytes], bool]:
    """What a new process finds: the state's number, the journal, and whether there was damage."""
    progress = Progress(storage, "model")
    found = progress.load()
    assert found is not None
    return int(found[0]["rounds"][0]), found[1], progress.damaged


class Cut(MemoryStorage):
    """A disk whose process is killed before the change number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def write(self, name: str, data: bytes) -> None:
        self._change()
        super().write(name, data)

    def append(self, name: str, data: bytes) -> None:
        self._change()
        super().append(name, data)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)


def test_nothing_saved_is_nothing_found():
    assert Progress(MemoryStorage(), "model").load() is None


def test_state_and_what_was_noted_since():
    storage = MemoryStorage()
    progress = Progress(storage, "model")
    progress.save(state(1))
    progress.note(b"one")
    progress.note(b"two")
    assert again(storage) == (1, [b"one", b"two"], False)
    progress.save(state(2))
    assert again(storage) == (2, [], False)


def test_a_kill_before_any_change_loses_nothing_that_was_durable():
    for at in range(40):
        storage = Cut(at)
        saved, noted = 0, []
        try:
            progress = Progress(storage, "model")
            for number in range(1, 8):
                progress.save(state(number))
                saved, noted = number, []
                for entry in (f"{number}a".encode(), f"{number}b".encode()):
                    progress.note(entry)
                    noted.append(entry)
        except KeyboardInterrupt:
            pass
        storage.left = 1000
        if saved:
            assert again(storage) == (saved, noted, False)


@pytest.mark.parametrize("newest", [1, 2, 3])
def test_a_damaged_newest_state_falls_back_and_nothing_published_is_lost(newest: int):
    storage = MemoryStorage()
    progress = Progress(storage, "model")
    for number in range(newest + 1):
        progress.save(state(number))
        progress.note(f"after {number}".encode())
    name = f"model/state.{(newest + 1) % 2}"
    data = storage.read(name)
    assert data is not None
    storage.write(name, data[:-3] + b"bad")
    assert again(storage) == (newest - 1, [f"after {newest - 1}".encode(), f"after {newest}".encode()], True)


def test_a_torn_note_is_cut_off_and_notes_after_it_are_found():
    storage = MemoryStorage()
    progress = Progress(storage, "model")
    progress.save(state(1))
    progress.note(b"whole")
    storage.append("model/journal.1", b"\0\0\0\7torn")
    assert again(storage) == (1, [b"whole"], False)
    second = Progress(storage, "model")
    second.load()
    second.note(b"later")
    assert again(storage) == (1, [b"whole", b"later"], False)


def test_a_full_disk_leaves_the_state_before():
    class Full(MemoryStorage):
        full = False

        def write(self, name: str, data: bytes) -> None:
            if self.full:
                raise LocalProblem("no space left")
            super().write(name, data)

    storage = Full()
    progress = Progress(storage, "model")
    progress.save(state(1))
    progress.note(b"one")
    storage.full = True
    with pytest.raises(LocalProblem):
        progress.save(state(2))
    progress.note(b"two")
    assert again(storage) == (1, [b"one", b"two"], False)
    storage.full = False
    progress.save(state(3))
    assert again(storage) == (3, [], False)
