"""Files that end with a hash of their content, and the one way in which damaged files are treated.

A node that cannot go on without a file says so and stops (`read_checked`). A file that it can do without is renamed, so
that nothing overwrites it, and reported (`read_or_set_aside`). No damaged file counts as missing without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blake3 import blake3

from ..wire.errors import Damaged, LocalProblem
from .files import Storage

SET_ASIDE = ".damaged"
_HASH_CHARS = 32
_END = 2 + _HASH_CHARS  # the hash on a line of its own, so that JSON stays readable

T = TypeVar("T")


def write_checked(storage: Storage, name: str, content: bytes) -> None:
    """Write a file with its hash; LocalProblem when the disk fails."""
    storage.write(name, content, b"\n", _hash(content), b"\n")


def read_checked(storage: Storage, name: str) -> bytes | None:
    """The content of a file written by `write_checked`; None when it does not exist, Damaged when it is not whole."""
    data = storage.read(name)
    if data is None:
        return None
    content = data[:-_END]
    if data[-_END:] != b"\n" + _hash(content) + b"\n":
        raise Damaged(f"{storage.path(name)} is {'damaged' if data else 'empty'}")
    return content


def read_or_set_aside(storage: Storage, name: str, decode: Callable[[bytes], T], lost: str) -> T | None:
    """The decoded content of a file that the node can do without; None when it is missing, or damaged and set aside.

    `decode` raises ValueError for what it cannot read; `lost` says what the node does without it.
    """
    try:
        content = read_checked(storage, name)
        return None if content is None else decode(content)
    except Damaged as problem:
        set_aside(storage, name, str(problem), lost)
    except ValueError as error:
        set_aside(storage, name, f"{storage.path(name)} cannot be read ({error})", lost)
    return None


def set_aside(storage: Storage, name: str, problem: str, lost: str) -> None:
    """Rename a damaged file, so that a user may still look at it, and note a warning for the node to report."""
    where = "it cannot be renamed"
    for suffix in (SET_ASIDE, f"{SET_ASIDE}.2", f"{SET_ASIDE}.3"):  # a directory does not replace a file
        try:
            storage.move(name, name + suffix)
        except LocalProblem:
            continue
        where = f"it is kept as {name.rpartition('/')[2]}{suffix}"
        break
    storage.warnings.append(f"{problem}; {lost}; {where}")


def _hash(content: bytes) -> bytes:
    return blake3(content).hexdigest()[:_HASH_CHARS].encode()
