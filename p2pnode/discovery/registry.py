"""Keeps track of peers: announcements go into the table, peers we met into the book; reports who comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ..network.base import Network
from ..runtime.events import Events
from ..storage.files import Storage
from ..wire.errors import LocalProblem, PeerMisbehaved
from ..wire.ids import PeerId, short
from ..wire.messages import Announcement, decode_announcement
from ..wire.records import SignedRecord
from .book import PeerBook
from .records import Records
from .swarm_time import SwarmClock
from .table import DIRECTORY, Peer, PeerTable

BOOK_FILE = "book.json"


class PeerRegistry:
    """The peers this node knows: those of now (table) and those of earlier (book)."""

    def __init__(
        self,
        table: PeerTable,
        records: Records,
        network: Network,
        clock: SwarmClock,
        events: Events,
        storage: Storage,
        fault: Callable[[PeerId, str], None],
    ) -> None:
        self.book = PeerBook(storage, BOOK_FILE)
        self.newcomer = asyncio.Event()  # set when a peer arrives; the waiter clears it
        self._table = table
        self._records = records
        self._network = network
        self._clock = clock
        self._events = events
        self._fault = fault

    def take_in(self, record: SignedRecord, source: PeerId) -> bool:
        """Verify and note an announcement that `source` sent us. Returns True when it names a new peer to try."""
        known = self._table.get(PeerId(record.peer))
        if known is not None and known.record.expiry >= record.expiry:
            return False  # most of what peers send is known already and need not be verified again
        if known is None and source != record.peer and self._table.source_is_full(source):
            return False
        if not self._records.verified(record):
            if self._records.forged(record):
                self._fault(source, "sent an announcement with a wrong signature")
            return False
        try:
            announcement = decode_announcement(record.value)
        except PeerMisbehaved:
            return False
        return self.note(record, announcement, source)

    def note(self, record: SignedRecord, announcement: Announcement, source: PeerId = DIRECTORY) -> bool:
        """Note a verified announcement. Returns True when it names a new peer to try."""
        id = PeerId(record.peer)
        before = self._table.get(id)
        new = self._table.add(record, announcement, source)
        after = self._table.get(id)
        if after is not None and (before is None or before.announcement.addresses != after.announcement.addresses):
            self._network.learn(id, after.announcement.addresses)
        if new:
            self.newcomer.set()
        elif before is not None and before.met and after is not None and after.announcement.left:
            self._events.say("peer left", f"{_called(announcement, id)} left")
        return new

    def answered(self, known: Peer) -> None:
        """Note that a peer answered a call. `known` is its entry from before the call."""
        now = self._table.get(known.id) or known
        self.book.met(now.id, now.announcement.addresses, self._clock.now())
        if known.silent and known.met:
            self._events.say("peer back", f"{_called(known.announcement, known.id)} answers again")

    def did_not_answer(self, known: Peer) -> None:
        """Note that a call to a known peer failed. Reported once, when the peer starts to count as silent."""
        after = self._table.get(known.id)
        if after is not None and after.met and after.silent and not known.silent:
            self._events.say("peer silent", f"{_called(known.announcement, known.id)} does not answer", warning=True)

    def tidy(self) -> None:
        """Drop expired announcements and save the book. A full disk costs the book, not the node.

        In a crowd most announcements expire because they were not read again, so nothing is reported.
        """
        gone = self._table.expire(self._clock.now())
        for peer in () if self._table.crowd else gone:
            self._events.say("peer gone", f"{_called(peer.announcement, peer.id)} was not heard of again", warning=True)
        try:
            self.book.save(self._clock.now())
        except LocalProblem as problem:
            self._events.say("disk", f"the peer book was not saved: {problem}", warning=True)


def arrival_reporter(events: Events) -> Callable[[Peer], None]:
    """Return what the table calls when a peer is met: it reports the arrival to people."""
    return lambda peer: events.say("peer joined", f"{_called(peer.announcement, peer.id)} is here")


def ignored_reporter(events: Events) -> Callable[[str, Mapping[str, int]], None]:
    """Return what the reputation calls when a peer gets ignored: it reports the reasons to people."""

    def report(peer: str, reasons: Mapping[str, int]) -> None:
        most = sorted(reasons, key=lambda reason: -reasons[reason])[:3]
        text = ", ".join(f"{reasons[reason]} times '{reason}'" for reason in most)
        events.say("peer ignored", f"requests of {short(peer)} are refused for a minute or more: {text}", warning=True)

    return report


def _called(announcement: Announcement, peer: PeerId) -> str:
    return f"{announcement.name} ({short(peer)})"
