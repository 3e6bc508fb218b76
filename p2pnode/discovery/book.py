"""The peer book: addresses of peers met before, so that a restarted node needs no bootstrap."""

from __future__ import annotations

import contextlib

import msgspec

from ..storage.checked import read_checked, read_or_set_aside, write_checked
from ..storage.files import Storage
from ..wire.addresses import Address, parse_address
from ..wire.errors import Damaged, LocalProblem, UsageError
from ..wire.types import decoded

MAX_ENTRIES = 200
SHORT = 16  # entries; a book this small is written at once
SAVE_PAUSE = 30.0  # seconds
ADDRESSES_PER_PEER = 8


class BookEntry(msgspec.Struct, frozen=True):
    """A peer we have met: its addresses, those of now before earlier ones, and when it last answered (swarm time)."""

    peer: str
    addresses: tuple[str, ...]
    met: float


_decoder = msgspec.json.Decoder(tuple[BookEntry, ...])


def _decode(content: bytes) -> tuple[BookEntry, ...]:
    return decoded(_decoder, content, "peer book")


class PeerBook:
    """One per data directory, for all its runs, as readable JSON. A damaged file is set aside and reported."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._changed = False
        self._failed = False
        self._saved = 0.0
        lost = "the book of peers met before starts empty"
        self._entries = {entry.peer: entry for entry in read_or_set_aside(storage, name, _decode, lost) or ()}

    def __len__(self) -> int:
        return len(self._entries)

    def met(self, peer: str, addresses: tuple[str, ...], now: float) -> None:
        """Note a peer that answered; if the book is full, the peer not met for longest is dropped.

        Its earlier addresses stay, behind those of now: a machine may return to where it was.
        """
        if not addresses:
            return
        known = self._entries.get(peer)
        earlier = () if known is None else known.addresses
        entry = BookEntry(peer, tuple(dict.fromkeys((*addresses, *earlier)))[:ADDRESSES_PER_PEER], now)
        self._changed |= known is None or known.addresses != entry.addresses or now - known.met > 60
        self._entries[peer] = entry
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[min(self._entries.values(), key=lambda entry: (entry.met, entry.peer)).peer]

    def addresses(self) -> list[Address]:
        """Return every usable address: the first of every peer, those met most recently first; then the second ones."""
        result: list[Address] = []
        for place in range(ADDRESSES_PER_PEER):
            for entry in self.entries():
                with contextlib.suppress(UsageError):
                    result += [parse_address(text) for text in entry.addresses[place : place + 1]]
        return result

    def entries(self) -> list[BookEntry]:
        return sorted(self._entries.values(), key=_latest_first)

    def save(self, now: float) -> None:
        """Write the book if it changed: a short one at once, a long one or after a failure every SAVE_PAUSE seconds."""
        hurry = len(self._entries) <= SHORT and not self._failed
        if not self._changed or (not hurry and abs(now - self._saved) < SAVE_PAUSE):
            return
        self._saved = now
        try:
            write_checked(self._storage, self._name, msgspec.json.format(msgspec.json.encode(self.entries())))
        except LocalProblem:
            self._failed = True
            raise
        self._changed = self._failed = False


def stored_entries(storage: Storage, name: str) -> list[BookEntry]:
    """The peers in a book, met most recently first, for somebody who only looks; Damaged when it is."""
    content = read_checked(storage, name)
    try:
        entries = () if content is None else _decode(content)
    except ValueError as error:
        raise Damaged(f"{storage.path(name)} is damaged ({error})") from None
    return sorted(entries, key=_latest_first)


def _latest_first(entry: BookEntry) -> tuple[float, str]:
    return -entry.met, entry.peer
