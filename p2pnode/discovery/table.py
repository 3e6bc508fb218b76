"""The bounded table of known peers, from their signed announcements and from our own calls.

A peer counts as present only after we met it: a call of ours succeeded, or it called us over its authenticated
connection. Announcements passed on by third parties are only addresses to try, because anybody can make up keypairs and
sign announcements with them.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..wire.ids import PeerId, short
from ..wire.messages import Announcement
from ..wire.records import SignedRecord
from .link_rate import LEAST_BYTES, smoothed

MAX_PEERS = 2000
REMEMBERED_TAGS = 4
SILENT_PINGS = 4  # silent peers pinged at a time
SILENT_AFTER = 3  # failed calls in a row after which a peer counts as silent
MAX_UNMET_PER_SOURCE = 64  # peers that one peer may name before we have met them
DIRECTORY = PeerId("")  # the source of announcements read in the directory


@dataclass(frozen=True)
class Peer:
    """What is known about one peer. `heard` is monotonic time (a call succeeded); its record's expiry is swarm time."""

    id: PeerId
    record: SignedRecord
    announcement: Announcement
    met: bool = False  # we have exchanged a message with it since it last left
    source: PeerId = DIRECTORY  # who first named it
    heard: float | None = None
    failures: int = 0
    latency: float | None = None  # seconds a small call takes
    rate: float | None = None  # bytes per second, once a large call has measured it
    listed: bool = False  # read in the directory, not only passed on by peers

    @property
    def name(self) -> str:
        return self.announcement.name

    def takes_part(self, job: str) -> bool:
        announced = self.announcement.jobs
        return self.announcement.role == "node" and (announced is None or any(one.job == job for one in announced))

    @property
    def silent(self) -> bool:
        return self.failures >= SILENT_AFTER

    @property
    def here(self) -> bool:
        return self.met and not self.silent and not self.announcement.left

    @property
    def fresh(self) -> bool:
        """Whether the peer was announced and not tried yet."""
        return not self.met and not self.failures and not self.announcement.left


class PeerTable:
    """Peers by id. Nothing here trusts a peer: announcements arrive verified, and calls are our own experience."""

    def __init__(
        self, own: PeerId, max_peers: int = MAX_PEERS, on_arrival: Callable[[Peer], None] = lambda peer: None
    ) -> None:
        self.max_peers = max_peers
        self.crowd = False  # whether the swarm is larger than we follow (in_a_crowd); nobody is news then
        self._on_arrival = on_arrival  # called when a peer is met, for the first time or again
        self._own = own
        self._peers: dict[PeerId, Peer] = {}
        self._order: list[PeerId] = []  # sorted: the table is read far more often than it changes
        self._present: dict[str | None, list[PeerId]] = {}  # cached results of `present`
        self._fresh: set[PeerId] = set()
        self._none_expires_before = math.inf  # swarm time; saves a search through the table

    def __iter__(self) -> Iterator[Peer]:
        return iter([self._peers[peer] for peer in self._order])

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, peer: PeerId) -> Peer | None:
        return self._peers.get(peer)

    def name_of(self, peer: PeerId) -> str:
        """What people call a peer: the name it announces, or a short id. Not cleaned: views do that."""
        known = self.get(peer)
        return (known.name if known is not None else "") or short(peer)

    def add(self, record: SignedRecord, announcement: Announcement, source: PeerId = DIRECTORY) -> bool:
        """Add a verified announcement. Returns True when it names a peer to try.

        A peer that announces itself to us directly counts as met. Only the peer itself can clear its record of not
        answering: others could claim without end that it restarted.
        """
        peer = PeerId(record.peer)
        known, direct, listed = self._peers.get(peer), source == peer, source == DIRECTORY
        if known is not None and listed and not known.listed:
            known = replace(known, listed=True)
            self._put(known)
        if peer == self._own or (known is not None and known.record.expiry >= record.expiry):
            return False
        if known is None:
            if len(self._peers) >= self.max_peers:
                self._remove(self._least_valuable(listed))
            self._put(Peer(peer, record, announcement, direct and not announcement.left, source, listed=listed))
            return not announcement.left and not self.crowd
        restarted = announcement.started != known.announcement.started
        met = (direct or known.met) and not announcement.left
        failures = 0 if direct and (restarted or not known.met) else known.failures
        self._put(replace(known, record=record, announcement=announcement, met=met, failures=failures))
        back = known.announcement.left or (restarted and known.met and known.silent)
        return back and not announcement.left and not self.crowd

    def source_is_full(self, source: PeerId) -> bool:
        """Whether a peer has named MAX_UNMET_PER_SOURCE peers that we never met: then no more are taken from it."""
        return sum(peer.source == source and not peer.met for peer in self._peers.values()) >= MAX_UNMET_PER_SOURCE

    def _least_valuable(self, listed: bool) -> PeerId:
        """Return the peer to forget first: one never met, then the one whose announcement expires soonest.

        Peers listed in the directory and peers passed on by others share the table: neither kind pushes the other out
        of its half.
        """
        too_many_listed = 2 * (sum(peer.listed for peer in self) + listed) > self.max_peers
        kind = [peer for peer in self if peer.listed == too_many_listed]
        return min(kind or self, key=lambda peer: (peer.met, peer.record.expiry, peer.id)).id

    def called(self, peer: PeerId) -> None:
        """Note that the peer called us, so it is there."""
        known = self._peers.get(peer)
        if known is not None and not known.met and not known.announcement.left:
            self._put(replace(known, met=True, failures=0))

    def heard(self, peer: PeerId, now: float, seconds: float, count: int = 0) -> None:
        """Note a successful call of `count` bytes: small calls measure the latency, large ones the rate."""
        known = self._peers.get(peer)
        if known is None:
            return
        latency = known.latency
        if count < LEAST_BYTES:
            latency = seconds if latency is None else 0.7 * latency + 0.3 * seconds
        rate = smoothed(known.rate, count, seconds, latency)
        met = not known.announcement.left
        self._put(replace(known, met=met, heard=now, failures=0, latency=latency, rate=rate))

    def failed(self, peer: PeerId) -> None:
        """Note a failed call; after SILENT_AFTER in a row the peer counts as silent."""
        known = self._peers.get(peer)
        if known is not None:
            self._put(replace(known, failures=known.failures + 1))

    def expire(self, swarm_now: float) -> list[Peer]:
        """Drop expired announcements. Returns those of peers that still counted as present."""
        if swarm_now < self._none_expires_before:
            return []
        gone = [peer for peer in self if peer.record.expiry <= swarm_now]
        for peer in gone:
            self._remove(peer.id)
        self._none_expires_before = min((peer.record.expiry for peer in self), default=math.inf)
        return [peer for peer in gone if peer.here]

    def present(self, tag: str | None = None) -> list[Peer]:
        """Return the peers that are there as far as we know: announced (in that run), met, not left, not silent."""
        return [self._peers[peer] for peer in self._ids_present(tag)]

    def doing(self, tag: str, job: str) -> list[Peer]:
        """Peers of a run that are there and take part in a job, or do not know their jobs yet."""
        return [peer for peer in self.present(tag) if peer.takes_part(job)]

    def to_try(self, tag: str) -> list[Peer]:
        """Return the peers of a run worth calling: those present first, then those not met yet."""
        able = (peer for peer in self if peer.announcement.run == tag and not peer.announcement.left)
        return sorted((peer for peer in able if not peer.silent), key=lambda peer: not peer.met)

    def urgent(self) -> list[PeerId]:
        """Return the peers to try at once. In a crowd, peers only read in the directory are too many to try."""
        return sorted(peer for peer in self._fresh if not (self.crowd and self._peers[peer].listed))

    def count_present(self, tag: str | None = None) -> int:
        return len(self._ids_present(tag))

    def _ids_present(self, tag: str | None) -> list[PeerId]:
        ids = self._present.get(tag)
        if ids is None:
            ids = [peer.id for peer in self if peer.here and tag in (None, peer.announcement.run)]
            if len(self._present) < REMEMBERED_TAGS:  # peers may ask about any tag, so the cache is bounded
                self._present[tag] = ids
        return ids

    def _put(self, peer: Peer) -> None:
        before = self._peers.get(peer.id)
        self._peers[peer.id] = peer
        if peer.fresh:
            self._fresh.add(peer.id)
        else:
            self._fresh.discard(peer.id)
        if before is None:
            insort(self._order, peer.id)
            self._none_expires_before = min(self._none_expires_before, peer.record.expiry)
        if before is None or (before.here, before.announcement.run) != (peer.here, peer.announcement.run):
            self._present.clear()
        if peer.met and (before is None or not before.met):
            self._on_arrival(peer)

    def _remove(self, peer: PeerId) -> None:
        del self._peers[peer]
        self._fresh.discard(peer)
        del self._order[bisect_left(self._order, peer)]
        self._present.clear()

    def running_out(self, before: float) -> PeerId | None:
        """Return the peer we heard last among those whose announcement expires before `before` (swarm time)."""
        soon = [peer for peer in self.present() if peer.heard is not None and peer.record.expiry < before]
        return max(soon, key=lambda peer: (peer.heard or 0.0, peer.id)).id if soon else None

    def pick_to_ping(self, rng: random.Random, count: int) -> list[PeerId]:
        """Return the peers to ping next: newcomers and one other, else anyone; every other time also silent ones.

        The more peers are silent, the more of them are pinged: after our own link was down, all should come back soon.
        """
        there = [peer for peer in self if not peer.announcement.left]
        others = [peer.id for peer in there if not peer.silent and peer.id not in self._fresh]
        fresh = self.urgent() or sorted(self._fresh)
        picks = rng.sample(fresh, min(max(1, count - 1), len(fresh)))
        picks += rng.sample(others, min(count - len(picks), 1 if picks else count, len(others)))
        silent = [peer for peer in there if peer.silent]
        if silent and (not picks or rng.random() < 0.5):
            some = rng.sample(silent, len(silent))
            some.sort(key=lambda peer: not peer.met)
            picks += [peer.id for peer in some[: min(SILENT_PINGS, 1 + len(silent) // 8)]]
        return picks


ENOUGH = 8  # with a directory of several keys, an eighth of the table is enough


def in_a_crowd(known: int, capacity: int, whole: bool) -> bool:
    """Whether the swarm is larger than this node follows, so that it need not look into news of other peers.

    `whole`: its own key is the whole directory. Then it wants to know everybody the table can hold.
    """
    return known >= (capacity if whole else max(1, capacity // ENOUGH))
