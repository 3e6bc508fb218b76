"""The storage seam: small named files, written completely or not at all; on disk, or in memory for the simulator."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Protocol

from ..wire.errors import Damaged, LocalProblem

Part = bytes | memoryview
UNFINISHED = ".part"
ELSEWHERE = "use another --data-dir"


class Storage(Protocol):
    """Named byte strings. Names are relative paths such as `book.json` or `runs/RUN/main/task.json`.

    Every method raises LocalProblem when the disk fails.
    """

    warnings: list[str]  # damage that was found and not reported yet (checked.py); the node reports and removes it

    def path(self, name: str) -> str:
        """The name as a user finds the file."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content, or None when the file does not exist; Damaged when there is no file but a directory."""
        ...

    def write(self, name: str, *parts: Part) -> None:
        """Replaces the content by the parts, in order. After a crash either the old or the new content is complete."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Appends durably. A crash may leave a torn tail, which the reader must detect."""
        ...

    def move(self, name: str, target: str) -> None:
        """Renames, replacing the target. Does nothing when the file does not exist."""
        ...

    def delete(self, name: str) -> None:
        """Deletes the file. Does nothing when it does not exist."""
        ...

    def used(self, folder: str) -> int:
        """The bytes of all files in a folder and below."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files directly in a folder, without the folder's name."""
        ...


class MemoryStorage:
    """Storage in memory: a simulated disk."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._files: dict[str, bytes] = {}

    def path(self, name: str) -> str:
        return name

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def write(self, name: str, *parts: Part) -> None:
        self._files[name] = b"".join(parts)

    def append(self, name: str, data: bytes) -> None:
        self._files[name] = self._files.get(name, b"") + data

    def move(self, name: str, target: str) -> None:
        if name in self._files:
            self._files[target] = self._files.pop(name)

    def delete(self, name: str) -> None:
        self._files.pop(name, None)

    def used(self, folder: str) -> int:
        return sum(len(data) for name, data in self._files.items() if name.startswith(f"{folder}/"))

    def names(self, folder: str) -> list[str]:
        inside = [name.removeprefix(f"{folder}/") for name in self._files if name.startswith(f"{folder}/")]
        return sorted(name for name in inside if "/" not in name)


class DiskStorage:
    """Storage in a directory. Writes go through a temporary file, fsync, rename, and fsync of the directory."""

    def __init__(self, root: Path) -> None:
        self.warnings: list[str] = []
        self._root = root

    def path(self, name: str) -> str:
        return str(self._root / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise Damaged(f"{self._root / name} is a directory") from None
        except OSError as error:
            raise _problem(self._root / name, error) from None

    def write(self, name: str, *parts: Part) -> None:
        write_whole(self._root / name, *parts)

    def append(self, name: str, data: bytes) -> None:
        path = self._root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _problem(path, error) from None

    def move(self, name: str, target: str) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._root / name, self._root / target)
        except OSError as error:
            raise _problem(self._root / target, error) from None

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise _problem(self._root / name, error) from None

    def used(self, folder: str) -> int:
        try:
            return sum(_size(path) for path in (self._root / folder).rglob("*"))
        except OSError as error:
            raise _problem(self._root / folder, error) from None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._root / folder) if entry.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _problem(self._root / folder, error) from None

    def sweep(self) -> None:
        """Deletes temporary files of a killed process. Only the owner of the directory's lock may call it."""
        for litter in self._root.rglob(f".*{UNFINISHED}"):
            with contextlib.suppress(OSError):
                litter.unlink()


def write_whole(path: Path, *parts: Part, mode: int = 0o600, remedy: str = ELSEWHERE) -> None:
    """Replaces a file atomically and durably; LocalProblem with the remedy when the disk fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise _problem(path, error, remedy) from None


def _size(path: Path) -> int:
    """The bytes of a file; 0 when it was renamed or deleted after it was listed."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _problem(path: Path, error: OSError, remedy: str = ELSEWHERE) -> LocalProblem:
    return LocalProblem(f"{path}: {error.strerror or error}; check the disk and the permissions, or {remedy}")
