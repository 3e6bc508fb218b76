"""The task that a job uses at this node, as the data directory remembers it: restart and export need no --task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from ...config.options import TrainOptions
from ...storage.checked import read_checked, set_aside, write_checked
from ...storage.files import Storage
from ...wire.errors import Damaged
from ...wire.ids import sha256

FILE = "task.json"  # in the job's folder


class SavedTask(msgspec.Struct, frozen=True):
    """Where this node has a job's task from. The run's plan has the task's options."""

    task: str | None = None  # as --task takes it, a file with its whole path; None: what is installed under its name
    source: str = ""  # sha256 of the file's content where the task is a file, as in the plan
    data: str | None = None  # --data


def save_task(storage: Storage, folder: str, options: TrainOptions) -> None:
    """Remember the task of a job that works with these options. `folder` is the job's (jobs.contract.job_folder)."""
    task = None if options.task is None else whole_path(options.task)
    data = None if options.data is None else str(options.data)
    saved = SavedTask(task, "" if task is None else source_hash(task), data)
    try:
        known = _load(storage, folder) or SavedTask()
    except Damaged as problem:
        known = None
        set_aside(storage, f"{folder}/{FILE}", str(problem), "the task given now is remembered")
    if saved != known:
        write_checked(storage, f"{folder}/{FILE}", msgspec.json.encode(saved))


def load_task_options(storage: Storage, folder: str, options: TrainOptions) -> TrainOptions:
    """The options with the remembered task and data, where the user gives none; Damaged when they cannot be read."""
    if options.task is not None and options.data is not None:
        return options
    try:
        saved = _load(storage, folder)
    except Damaged as problem:
        if options.task is not None:
            return options  # the user says it anew, and it is saved anew
        raise Damaged(
            f"{problem}; give the task again with --task (and --data if you did), or delete the file"
        ) from None
    if saved is None:
        return options
    data = None if saved.data is None else Path(saved.data)
    return replace(options, task=options.task or saved.task, data=options.data or data)


def _load(storage: Storage, folder: str) -> SavedTask | None:
    content = read_checked(storage, f"{folder}/{FILE}")
    return None if content is None else msgspec.json.decode(content, type=SavedTask)


def whole_path(task: str) -> str:
    """A task as --task takes it; the file in it, if it names one, with its whole path."""
    path, name = file_of(task)
    return task if path is None else f"{path.expanduser().absolute()}{name}"


def source_hash(task: str) -> str:
    """The sha256 of the task's file; "" when the task is no file, or the file cannot be read."""
    path, _ = file_of(task)
    try:
        return "" if path is None else sha256(path.read_bytes()).hex()
    except OSError:
        return ""


def file_of(task: str) -> tuple[Path | None, str]:
    """The file that a task names, and what follows it (`:Class`, or nothing); None for a name or a module."""
    path, colon, name = (task, "", "") if task.endswith(".py") else task.rpartition(":")
    return (Path(path), colon + name) if path.endswith(".py") else (None, "")
