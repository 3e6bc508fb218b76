"""What is on disk: whole or not there, private, locked."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from p2pnode.config.options import Options
from p2pnode.discovery.book import ADDRESSES_PER_PEER, MAX_ENTRIES, PeerBook
from p2pnode.node.place import open_place
from p2pnode.storage.datadir import open_data_dir
from p2pnode.storage.files import DiskStorage, MemoryStorage, Part, Storage, write_whole
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity

PEER = Identity(b"a" * 32).peer_id


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStorage() if request.param == "memory" else DiskStorage(tmp_path)


def test_what_is_written_is_read(storage: Storage) -> None:
    assert storage.read("runs/x/manifest") is None
    storage.write("runs/x/manifest", b"one")
    storage.write("runs/x/manifest", b"two")
    assert storage.read("runs/x/manifest") == b"two"
    storage.delete("runs/x/manifest")
    storage.delete("runs/x/manifest")
    assert storage.read("runs/x/manifest") is None


def test_parts_become_one_content_and_a_folder_knows_its_size(storage: Storage) -> None:
    storage.write("runs/x/state", b"one", memoryview(b" and two"))
    storage.append("runs/x/journal", b"more")
    storage.write("book", b"not in runs")
    assert storage.read("runs/x/state") == b"one and two"
    assert storage.used("runs") == len(b"one and two" + b"more")
    assert storage.used("elsewhere") == 0


def test_what_a_killed_node_left_half_written_goes_at_the_next_start(tmp_path: Path, monkeypatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: names.extend(os.listdir(tmp_path)))
    write_whole(tmp_path / "state", b"whole")
    half = names[0]
    (tmp_path / half).write_bytes(b"half")
    open_data_dir(tmp_path).close()
    assert half not in os.listdir(tmp_path)
    assert (tmp_path / "state").read_bytes() == b"whole"


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    write_whole(target, b"old")

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(LocalProblem, match="No space left"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_deleted_or_measured_is_a_local_problem_like_any_other(tmp_path: Path, monkeypatch) -> None:
    storage = DiskStorage(tmp_path)
    storage.write("runs/x/state", b"one")
    with pytest.raises(LocalProblem, match="--data-dir"):
        storage.delete("runs/x")  # a directory

    def broken(path: Path, **how: object) -> os.stat_result:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "stat", broken)
    with pytest.raises(LocalProblem, match="Input/output error"):
        storage.used("runs")


@pytest.mark.parametrize("late", [False, True])
def test_files_that_vanish_while_a_folder_is_measured_do_not_count_against_it(
    tmp_path: Path, monkeypatch, late
) -> None:
    storage, look = DiskStorage(tmp_path), Path.stat
    storage.write("runs/x/state", b"one")
    storage.write("runs/x/.journal.part", b"half")

    def renamed_meanwhile(path: Path, **how: bool) -> os.stat_result:
        found = look(path, **how) if late else None
        if path.name == ".journal.part":
            path.unlink(missing_ok=True)
        return found or look(path, **how)

    monkeypatch.setattr(Path, "stat", renamed_meanwhile)
    assert storage.used("runs") in (len(b"one"), len(b"one" + b"half"))


def test_the_identity_is_kept_and_private(tmp_path: Path) -> None:
    first = open_data_dir(tmp_path / "data")
    peer = first.identity().peer_id
    assert stat.S_IMODE(first.key_file.stat().st_mode) == 0o600
    first.close()
    second = open_data_dir(tmp_path / "data")
    assert second.identity().peer_id == peer


def test_a_damaged_identity_is_said_and_left_alone(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    data_dir.identity()
    data_dir.key_file.write_bytes(b"garbage")
    with pytest.raises(LocalProblem, match="damaged"):
        data_dir.identity()
    assert data_dir.key_file.read_bytes() == b"garbage"


def test_a_second_node_on_the_same_directory_gets_one_line(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    with pytest.raises(LocalProblem, match=f"process {os.getpid()}"):
        open_data_dir(tmp_path)
    data_dir.close()
    open_data_dir(tmp_path).close()


def test_an_unusable_directory_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalProblem, match="--data-dir"):
        open_data_dir(tmp_path / "file" / "data")


def test_the_port_is_remembered(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    assert data_dir.port() is None
    data_dir.remember_port(31337)
    assert data_dir.port() == 31337
    data_dir.storage.write("port", b"rubbish")
    assert data_dir.port() is None


def test_a_first_start_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "new", tmp_path):
        data_dir = open_data_dir(path)
        data_dir.identity()
        data_dir.discard()
        data_dir.close()
    assert tmp_path.exists() and not list(tmp_path.iterdir())


def test_a_data_directory_that_was_in_use_is_not_discarded(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    peer = data_dir.identity().peer_id
    data_dir.close()
    data_dir = open_data_dir(tmp_path)
    data_dir.discard()
    assert data_dir.identity().peer_id == peer
    data_dir.close()


def test_a_node_goes_by_the_name_of_its_last_start(tmp_path: Path) -> None:
    options = Options(data_dir=tmp_path / "node")
    data_dir = open_data_dir(options.data_dir)
    data_dir.remember_name("ann")
    data_dir.close()
    for given, name in ((None, "ann"), ("bob", "bob")):
        found, data_dir = open_place(replace(options, name=given), None)
        assert found.name == name
        data_dir.close()


def test_the_book_remembers_the_latest_met_first(storage: Storage) -> None:
    book = PeerBook(storage, "book")
    book.met("old", (f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}", "nonsense"), 1.0)
    book.met("new", (f"/ip4/2.2.2.2/tcp/2/p2p/{PEER}",), 2.0)
    book.met("hidden", (), 3.0)
    book.save(3.0)
    again = PeerBook(storage, "book")
    assert [address.transport for address in again.addresses()] == ["/ip4/2.2.2.2/tcp/2", "/ip4/1.1.1.1/tcp/1"]
    assert not storage.warnings


def test_the_book_is_bounded(storage: Storage) -> None:
    book = PeerBook(storage, "book")
    for number in range(MAX_ENTRIES + 50):
        book.met(f"peer {number}", (f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}",), float(number))
    assert len(book) == MAX_ENTRIES
    assert book.entries()[-1].peer == "peer 50"


def test_a_damaged_book_is_an_empty_one_and_is_set_aside(storage: Storage) -> None:
    storage.write("book", b"{not json")
    book = PeerBook(storage, "book")
    assert len(book) == 0 and len(storage.warnings) == 1
    assert storage.read("book.damaged") == b"{not json"


class FullDisk(MemoryStorage):
    """Refuses to write, and counts."""

    tries = 0

    def write(self, name: str, *parts: Part) -> None:
        self.tries += 1
        raise LocalProblem("the disk is full")


def test_a_long_book_and_a_full_disk_are_not_written_at_every_turn() -> None:
    disk = FullDisk()
    book = PeerBook(disk, "book")
    book.met("alice", (f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}",), 0.0)
    for now in range(100, 160):
        try:
            book.save(float(now))
        except LocalProblem:
            continue
    assert disk.tries == 2
    written = MemoryStorage()
    long = PeerBook(written, "book")
    for number in range(100):
        long.met(f"peer {number}", (f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}",), 100.0)
    long.save(100.0)
    before = written.read("book")
    long.met("one more", (f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}",), 101.0)
    long.save(101.0)
    assert written.read("book") == before
    long.save(131.0)
    assert written.read("book") != before


def test_earlier_addresses_stay_in_the_book_behind_those_of_now(storage: Storage) -> None:
    book = PeerBook(storage, "book")
    for port in range(1, 12):
        book.met("mover", (f"/ip4/1.1.1.1/tcp/{port}/p2p/{PEER}",), float(port))
    book.met("stayer", (f"/ip4/2.2.2.2/tcp/2/p2p/{PEER}",), 1.0)
    found = [address.transport for address in book.addresses()]
    assert found[:3] == ["/ip4/1.1.1.1/tcp/11", "/ip4/2.2.2.2/tcp/2", "/ip4/1.1.1.1/tcp/10"]
    assert len(found) == ADDRESSES_PER_PEER + 1


def test_what_is_appended_is_for_the_owner_alone(tmp_path: Path) -> None:
    storage = DiskStorage(tmp_path)
    before = os.umask(0)
    try:
        storage.append("folder/journal", b"a")
        storage.append("folder/journal", b"b")
    finally:
        os.umask(before)
    assert (tmp_path / "folder/journal").stat().st_mode & 0o777 == 0o600
    assert storage.read("folder/journal") == b"ab"
