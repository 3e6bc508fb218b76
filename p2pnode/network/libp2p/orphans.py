"""Ends daemons that outlived their node. Each running p2pd is recorded on disk, and found again at the next start.

On Linux the kernel ends p2pd together with its node. This is for other systems, and for the socket directory that a
killed node leaves behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from ...storage.checked import read_or_set_aside, write_checked
from ...storage.files import DiskStorage
from ...wire.errors import LocalProblem
from ...wire.types import Seconds, decoded

RECORD = "daemon.json"
SWEEP_LIMIT: Seconds = 3.0
MAX_DIRECTORY_CHARS = 60  # a unix socket's path may have 108 bytes, on macOS 104
SHORT_TMP = "/tmp"
_SOCKETS_PREFIX = "p2pnode-"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DaemonRecord:
    """The process of the daemon and the one that started it. Their start times reveal pids that were reused."""

    pid: int
    started: float
    owner: int
    owner_started: float
    sockets: str


_decoder = msgspec.json.Decoder(DaemonRecord)


def socket_directory() -> Path:
    """A new private directory for sockets, named after this process. Directories of dead processes are removed."""
    for base in {tempfile.gettempdir(), SHORT_TMP}:
        for left in Path(base).glob(f"{_SOCKETS_PREFIX}*-*"):
            _remove_if_ownerless(left)
    prefix = f"{_SOCKETS_PREFIX}{os.getpid()}-"
    path = tempfile.mkdtemp(prefix=prefix)  # mode 0700
    if len(path) > MAX_DIRECTORY_CHARS:
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix=prefix, dir=SHORT_TMP)
    return Path(path)


def _remove_if_ownerless(directory: Path) -> None:
    owner = directory.name.removeprefix(_SOCKETS_PREFIX).partition("-")[0]
    with contextlib.suppress(OSError):
        ours = directory.is_dir() and not directory.is_symlink() and directory.lstat().st_uid == os.getuid()
        if ours and owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(directory, ignore_errors=True)


def record_daemon(directory: Path, pid: int, sockets: Path) -> None:
    """Record a daemon that this process has just started. Without room on the disk it runs unrecorded."""
    record = DaemonRecord(pid, _started(pid) or 0.0, os.getpid(), _started(os.getpid()) or 0.0, str(sockets))
    try:
        write_record(directory, record)
    except LocalProblem as problem:
        logger.warning("if this node is killed, its p2pd (process %d) may outlive it: %s", pid, problem)


def write_record(directory: Path, record: DaemonRecord) -> None:
    write_checked(DiskStorage(directory), RECORD, msgspec.json.encode(record))


def forget_daemon(directory: Path, pid: int) -> None:
    """Delete the record, unless it is already that of another daemon."""
    record = read_record(directory)
    if record is None or record.pid == pid:
        _delete_record(directory)


def _delete_record(directory: Path) -> None:
    """A record that cannot be deleted names a process that is gone: the next start does without it."""
    with contextlib.suppress(OSError):
        (directory / RECORD).unlink(missing_ok=True)


def sweep_orphan(directory: Path) -> bool:
    """End the daemon recorded here if its node is gone, and remove its sockets. Returns whether it still ran.

    LocalProblem when the node that owns it is still running. Blocks for at most SWEEP_LIMIT.
    """
    record = read_record(directory)
    if record is None:
        return False
    if record.owner != os.getpid() and _started(record.owner) == record.owner_started:
        raise LocalProblem(f"another node (process {record.owner}) uses {directory}; stop it or give another directory")
    ended = _end(record)
    sockets = Path(record.sockets)
    if sockets.name.startswith(_SOCKETS_PREFIX) and not sockets.is_symlink():
        shutil.rmtree(sockets, ignore_errors=True)
    _delete_record(directory)
    return ended


def _end(record: DaemonRecord) -> bool:
    if _started(record.pid) != record.started:
        return False
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(record.pid)
        if process.name() == "p2pd":
            process.kill()
            process.wait(SWEEP_LIMIT)
            return True
    return False


def _started(pid: int) -> float | None:
    """When a process started; None when it does not run."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.Error:
        return None


def read_record(directory: Path) -> DaemonRecord | None:
    """The record; None when it is missing, or was damaged and is set aside, which is logged."""
    storage = DiskStorage(directory)
    lost = "a daemon of an earlier start may still run; if so, end that p2pd by hand"
    record = read_or_set_aside(storage, RECORD, lambda content: decoded(_decoder, content, "record"), lost)
    for warning in storage.warnings:
        logger.warning("%s", warning)
    return record
