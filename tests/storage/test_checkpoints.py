"""Checkpoints on disk: whatever is cut off or damaged, one state and all that was published after it come back."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.storage.checkpoints import FAR_INCARNATIONS, STATES, CheckpointStore
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.wire.errors import LocalProblem


def state(number: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(5, number, np.int32), "rounds": np.array([number], np.int64)}


def again(storage: MemoryStorage) -> tuple[int, list[bytes], bool]:
    """What a new process finds: the state's number, the journal, and whether there was damage."""
    progress = CheckpointStore(storage, "model")
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

    def write(self, name: str, *parts: Part) -> None:
        self._change()
        super().write(name, *parts)

    def append(self, name: str, data: bytes) -> None:
        self._change()
        super().append(name, data)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)


def test_nothing_saved_is_nothing_found():
    assert CheckpointStore(MemoryStorage(), "model").load() is None


def test_state_and_what_was_noted_since():
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    progress.save(state(1))
    progress.note(b"one")
    progress.note(b"two")
    assert again(storage) == (1, [b"one", b"two"], False)
    progress.save(state(2))
    assert again(storage) == (2, [], False)


def test_a_kill_before_any_change_loses_nothing_that_was_durable():
    for at in range(40):
        storage = Cut(at)
        saved = 0
        noted: list[bytes] = []
        try:
            progress = CheckpointStore(storage, "model")
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


@pytest.mark.parametrize("latest", [1, 2, 3])
def test_a_damaged_latest_state_falls_back_and_nothing_published_is_lost(latest: int):
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    for number in range(latest + 1):
        progress.save(state(number))
        progress.note(f"after {number}".encode())
    name = f"model/state.{(latest + 1) % 2}"
    data = storage.read(name)
    assert data is not None
    storage.write(name, data[:-3] + b"bad")
    assert again(storage) == (latest - 1, [f"after {latest - 1}".encode(), f"after {latest}".encode()], True)


@pytest.mark.parametrize("change", ["torn", "flipped", "truncated", "emptied"])
def test_after_a_damaged_note_there_is_a_gap_until_the_next_state(change: str):
    """What follows the damage may be known to others, so its numbers must not be signed again."""
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    progress.save(state(1))
    progress.note(b"whole")
    whole = storage.read("model/journal.1") or b""
    progress.note(b"known to others")
    both = storage.read("model/journal.1") or b""
    damaged = {
        "torn": whole + b"\0\0\0\7torn",
        "flipped": both[: len(whole) + 14] + b"?" + both[len(whole) + 15 :],
        "truncated": both[:-1],
        "emptied": b"",
    }
    storage.write("model/journal.1", damaged[change])
    kept = [] if change == "emptied" else [b"whole"]
    for _ in range(2):  # a crash before the next state changes nothing
        assert again(storage) == (1, kept, False) and found_gap(storage)
    assert storage.read("model/journal.1.damaged") == damaged[change]
    second = CheckpointStore(storage, "model")
    second.load()
    second.save(state(2))
    second.note(b"later")
    assert again(storage) == (2, [b"later"], False) and not found_gap(storage)


def test_damage_twice_loses_nothing_that_was_published():
    """After a damaged state both journals count, also when the node ends before it saves again."""
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    for number in (1, 2):
        progress.save(state(number))
        progress.note(f"after {number}".encode())
    storage.write("model/state.0", b"damaged")
    assert again(storage) == (1, [b"after 1", b"after 2"], True)
    assert again(storage) == (1, [b"after 1", b"after 2"], False)
    assert storage.read("model/state.0.damaged") == b"damaged" and len(storage.warnings) == 1


def test_when_both_states_are_damaged_all_is_kept_under_other_names():
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    for number in (1, 2):
        progress.save(state(number))
        progress.note(b"published")
    for slot in (0, 1):
        storage.write(f"model/state.{slot}", b"")
    second = CheckpointStore(storage, "model")
    assert second.load() is None and second.damaged
    second.save(state(3))
    kept = {f"{kind}.{slot}.damaged" for kind in ("state", "journal") for slot in (0, 1)}
    assert kept <= set(storage.names("model"))
    assert again(storage) == (3, [], False)


@pytest.mark.parametrize("damage", [b"", b"1", b"\xff"])
def test_a_damaged_incarnation_gives_a_number_far_from_the_old_ones(damage: bytes):
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "model")
    assert [progress.next_incarnation() for _ in range(3)] == [0, 1, 2]
    storage.write("model/incarnation", damage)
    number = progress.next_incarnation()
    assert number in FAR_INCARNATIONS and progress.next_incarnation() == number + 1
    assert "incarnation" in storage.warnings[0]


def test_a_full_disk_leaves_the_state_before():
    class Full(MemoryStorage):
        full = False

        def write(self, name: str, *parts: Part) -> None:
            if self.full:
                raise LocalProblem("no space left")
            super().write(name, *parts)

    storage = Full()
    progress = CheckpointStore(storage, "model")
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


class NoNotes(MemoryStorage):
    """A disk that is too full to append to."""

    full = True

    def append(self, name: str, data: bytes) -> None:
        if self.full:
            raise LocalProblem("no space left")
        super().append(name, data)


def with_a_gap() -> tuple[NoNotes, CheckpointStore]:
    storage = NoNotes()
    progress = CheckpointStore(storage, "model")
    progress.save(state(1))
    with pytest.raises(LocalProblem):
        progress.note(b"lost")
    return storage, progress


def found_gap(storage: MemoryStorage) -> bool:
    progress = CheckpointStore(storage, "model")
    assert progress.load() is not None
    return progress.gap


def test_what_could_not_be_noted_leaves_a_gap_that_a_restart_sees():
    storage, _ = with_a_gap()
    assert again(storage) == (1, [], False)
    assert found_gap(storage)


def test_after_a_gap_nothing_is_noted_until_a_state_is_saved():
    storage, progress = with_a_gap()
    storage.full = False
    progress.note(b"after the gap")
    assert again(storage) == (1, [], False)
    progress.save(state(2))
    progress.note(b"after the state")
    assert again(storage) == (2, [b"after the state"], False)
    assert not found_gap(storage)


def test_a_gap_is_seen_when_the_state_after_it_is_damaged():
    storage, progress = with_a_gap()
    progress.save(state(2))
    storage.write("model/state.0", b"damaged")
    assert again(storage) == (1, [], True)
    assert found_gap(storage)


def test_without_a_state_nothing_is_noted():
    storage = MemoryStorage()
    CheckpointStore(storage, "model").note(b"follows nothing")
    assert storage.used("model") == 0


@settings(max_examples=50, deadline=None)
@given(notes=st.lists(st.integers(0, 400), max_size=60), most=st.integers(0, 4000))
def test_max_disk_bounds_all_that_is_written(notes: list[int], most: int):
    """States, journals and what other runs hold together; a state being written counts too."""
    storage = MemoryStorage()
    storage.write("runs/other/main/state.0", bytes(300))
    progress = CheckpointStore(storage, "runs/own/main", most)
    sizes = []
    for length in notes:
        with contextlib.suppress(LocalProblem):
            if progress.due or not progress.state_bytes:
                progress.save(state(1))
                sizes.append(storage.used("runs/own"))
            progress.note(bytes(length))
        assert storage.used("runs") + progress.state_bytes <= max(most, 300)
    assert bool(sizes) == (bool(notes) and most >= 300 + STATES * state_size())


def test_a_disk_that_cannot_be_measured_ends_nothing(monkeypatch):
    storage = MemoryStorage()
    progress = CheckpointStore(storage, "runs/own/main", 4000)
    progress.save(state(1))

    def broken(folder: str) -> int:
        raise LocalProblem("Input/output error")

    monkeypatch.setattr(storage, "used", broken)
    assert not progress.due
    with pytest.raises(LocalProblem, match="Input"):
        progress.save(state(2))


def state_size() -> int:
    """Of a state on disk."""
    storage = MemoryStorage()
    CheckpointStore(storage, "model").save(state(1))
    return storage.used("model")
