"""A node's data directory. One node may use it at a time, and its identity stays the same."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from ..config.readers import read_name
from ..wire.errors import LocalProblem, UsageError
from ..wire.ids import Identity
from .checked import read_or_set_aside, write_checked
from .files import DiskStorage, write_whole

IDENTITY_FILE = "identity.key"
LOCK_FILE = "lock"
PORT_FILE = "port"
NAME_FILE = "name"


class DataDirInUse(LocalProblem):
    """Another process has the data directory open."""


class DataDir:
    """An open and locked data directory. Close it before another node can use it."""

    def __init__(self, path: Path, lock: int, made: bool = False) -> None:
        """`made`: the directory did not exist before."""
        self.path = path
        self._made = made
        self.storage = DiskStorage(path)
        self.key_file = path / IDENTITY_FILE
        self._first_start = not self.key_file.exists()
        self._lock = lock

    def identity(self) -> Identity:
        """The node's identity, created at the first start; LocalProblem when its file is damaged."""
        if not self.key_file.exists():
            write_whole(self.key_file, Identity(secrets.token_bytes(32)).to_key_file())
        try:
            identity = Identity.from_key_file(self.key_file.read_bytes())
        except (ValueError, OSError) as error:
            raise LocalProblem(
                f"{self.key_file} is damaged ({error}); restore it from a copy, "
                "or move it away to start under a new identity"
            ) from None
        if self.key_file.stat().st_mode & 0o077:
            self.key_file.chmod(0o600)
        return identity

    def port(self) -> int | None:
        """The port that this node listened on last time, so that its address stays the same; None when unknown."""
        lost = "this node listens on another port, so invites with its old address may not work"
        port = read_or_set_aside(self.storage, PORT_FILE, int, lost)
        return port if port is not None and 0 < port < 65536 else None

    def remember_port(self, port: int) -> None:
        if port != self.port():
            write_checked(self.storage, PORT_FILE, str(port).encode())

    def name(self) -> str | None:
        """The name that the user gave this node at an earlier start; None when there is none."""
        return read_or_set_aside(self.storage, NAME_FILE, _read_name, "this node goes by the name of its identity")

    def remember_name(self, name: str) -> None:
        if name != self.name():
            write_checked(self.storage, NAME_FILE, name.encode())

    def discard(self) -> None:
        """Remove what a first start has written that came to nothing. A directory that was in use before stays."""
        if not self._first_start:
            return
        for name in (IDENTITY_FILE, LOCK_FILE, NAME_FILE):
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        if self._made:
            with contextlib.suppress(OSError):  # something else is in it
                self.path.rmdir()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._lock)


def open_data_dir(path: Path) -> DataDir:
    """Creates the directory if necessary and locks it; DataDirInUse or LocalProblem when it cannot be used."""
    made = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LocalProblem(
            f"cannot use the data directory {path} ({error.filename}: {error.strerror}); choose another with --data-dir"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "?"
        os.close(lock)
        raise DataDirInUse(
            f"another node (process {holder}) uses the data directory {path}; "
            "stop it, or give this one its own --data-dir"
        ) from None
    DiskStorage(path).sweep()
    with contextlib.suppress(OSError):  # a full disk: then nobody reads whose lock it is
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return DataDir(path, lock, made)


def _read_name(content: bytes) -> str:
    """ValueError when this is no name of a node."""
    try:
        return read_name(content.decode())
    except UsageError as error:
        raise ValueError(str(error)) from None
