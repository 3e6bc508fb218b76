"""Checked files notice every change of their content, and a damaged file is renamed and reported, never forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pnode.storage.checked import read_checked, read_or_set_aside, write_checked
from p2pnode.storage.files import DiskStorage, MemoryStorage
from p2pnode.wire.errors import Damaged


def test_what_was_written_is_read_again_and_stays_readable_for_people() -> None:
    storage = MemoryStorage()
    write_checked(storage, "run.json", b'{"a": 1}')
    assert read_checked(storage, "run.json") == b'{"a": 1}'
    assert (storage.read("run.json") or b"").splitlines()[0] == b'{"a": 1}'
    assert read_checked(storage, "other") is None


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    storage = MemoryStorage()
    write_checked(storage, "file", b"content")
    whole = storage.read("file") or b""
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    for damaged in [*flipped, *(whole[:end] for end in range(len(whole))), whole + b"x"]:
        storage.write("file", damaged)
        with pytest.raises(Damaged):
            read_checked(storage, "file")


@pytest.mark.parametrize("content", [b"", b"half", None])
def test_a_damaged_file_is_renamed_and_reported(tmp_path: Path, content: bytes | None) -> None:
    storage, path = DiskStorage(tmp_path), tmp_path / "book.json"
    path.mkdir() if content is None else path.write_bytes(content)
    assert read_or_set_aside(storage, "book.json", bytes.decode, "peers are looked for again") is None
    assert not path.exists() and (tmp_path / "book.json.damaged").exists()
    (warning,) = storage.warnings
    assert str(path) in warning and "looked for again" in warning and "kept as book.json.damaged" in warning
    assert read_or_set_aside(storage, "book.json", bytes.decode, "") is None and len(storage.warnings) == 1


def test_a_whole_file_that_cannot_be_decoded_counts_as_damaged() -> None:
    storage = MemoryStorage()
    write_checked(storage, "port", b"many")
    assert read_or_set_aside(storage, "port", int, "the port may change") is None
    assert "cannot be read" in storage.warnings[0] and "the port may change" in storage.warnings[0]
