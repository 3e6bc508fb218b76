"""The data directory remembers a job's task and data, so that restart and export need neither --task nor --data."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.saved_task import FILE, load_task_options, save_task, source_hash, whole_path
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.errors import Damaged
from p2pnode.wire.ids import sha256


def test_what_was_given_is_remembered_and_what_is_given_anew_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = MemoryStorage()
    save_task(storage, "runs/R/main", TrainOptions("mine.py:Mine", data=Path("/data")))
    again = load_task_options(storage, "runs/R/main", TrainOptions(device="cpu"))
    assert again == TrainOptions(f"{tmp_path}/mine.py:Mine", data=Path("/data"), device="cpu")
    assert load_task_options(storage, "runs/R/main", TrainOptions("digits")).task == "digits"
    assert load_task_options(storage, "runs/R/other", TrainOptions()) == TrainOptions()


def test_nothing_is_written_for_a_task_that_is_found_by_the_name_in_the_plan() -> None:
    storage = MemoryStorage()
    save_task(storage, "runs/R/main", TrainOptions())
    assert storage.names("runs/R/main") == []


def test_a_damaged_file_says_what_to_do_and_the_task_given_again_replaces_it() -> None:
    storage = MemoryStorage()
    save_task(storage, "f", TrainOptions("digits"))
    storage.write(f"f/{FILE}", b"")
    with pytest.raises(Damaged, match=r"task\.json is empty; give the task again with --task"):
        load_task_options(storage, "f", TrainOptions())
    save_task(storage, "f", load_task_options(storage, "f", TrainOptions("text")))
    assert load_task_options(storage, "f", TrainOptions()).task == "text"
    assert "the task given now is remembered" in storage.warnings[0]


def test_a_file_has_a_whole_path_and_a_hash_and_a_name_has_neither(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    assert source_hash(f"{file}:Mine") == source_hash(str(file)) == sha256(b"x = 1\n").hex()
    assert whole_path("digits") == "digits" and whole_path("package.module:Class") == "package.module:Class"
    assert source_hash("digits") == source_hash("package.module:Class") == source_hash("/gone/mine.py") == ""
