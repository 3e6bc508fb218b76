"""The peers this node knows of, from their signed announcements and from its own calls to them. Bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ids import PeerId
from ..messages import Announcement
from ..records import SignedRecord

MAX_PEERS = 2000
SILENT_AFTER = 3  # failed calls in a row after which a peer counts as gone


@dataclass(frozen=True)
class Peer:
    """What is known of one peer. Times: `heard` monotonic (a call to it succeeded), expiry in its record swarm time."""

    id: PeerId
    record: SignedRecord
    announcement: Announcement
    heard: float | None = None
    failures: int = 0
    latency: float | None = None

    @property
    def name(self) -> str:
        return self.announcement.name

    @property
    def silent(self) -> bool:
        return self.failures >= SILENT_AFTER


class PeerTable:
    """Peers by id. Nothing here trusts a peer: announcements come in verified, calls are our own experience."""

    def __init__(self, own: PeerId, max_peers: int = MAX_PEERS) -> None:
        self._own = own
        self._peers: dict[PeerId, Peer] = {}
        self._max_peers = max_peers

    def __iter__(self) -> Iterator[Peer]:
        return iter([self._peers[peer] for peer in sorted(self._peers)])

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, peer: PeerId) -> Peer | None:
        return self._peers.get(peer)

    def add(self, record: SignedRecord, announcement: Announcement) -> bool:
        """Take in a verified announcement; True when it tells of a new arrival. `left` removes the peer."""
        peer = PeerId(record.peer)
        known = self._peers.get(peer)
        if peer == self._own or (known is not None and known.record.expiry >= record.expiry):
            return False
        if known is None:
            if len(self._peers) >= self._max_peers:
                del self._peers[self._least_valuable()]
            self._peers[peer] = Peer(peer, record, announcement)
            return not announcement.left
        self._peers[peer] = replace(known, record=record, announcement=announcement)
        return known.announcement.left and not announcement.left

    def _least_valuable(self) -> PeerId:
        """Whom to forget first: peers never spoken with, then those whose word runs out soonest."""
        return min(self._peers.values(), key=lambda peer: (peer.heard is not None, peer.record.expiry, peer.id)).id

    def heard(self, peer: PeerId, now: float, latency: float) -> None:
        """A call to the peer succeeded."""
        known = self._peers.get(peer)
        if known is not None:
            smoothed = latency if known.latency is None else 0.7 * known.latency + 0.3 * latency
            self._peers[peer] = replace(known, heard=now, failures=0, latency=smoothed)

    def failed(self, peer: PeerId) -> bool:
        """A call to the peer failed; True when this makes it count as silent."""
        known = self._peers.get(peer)
        if known is None:
            return False
        self._peers[peer] = replace(known, failures=known.failures + 1)
        return known.failures + 1 == SILENT_AFTER

    def expire(self, swarm_now: float) -> list[Peer]:
        """Forget announcements that ran out; returns those that were still counted as present."""
        gone = [peer for peer in self if peer.record.expiry <= swarm_now]
        for peer in gone:
            del self._peers[peer.id]
        return [peer for peer in gone if not peer.announcement.left and not peer.silent]

    def present(self, tag: str | None = None) -> list[Peer]:
        """Peers that are there as far as we know: announced (in that run), not left, not silent."""
        return [
            peer
            for peer in self
            if not peer.announcement.left and not peer.silent and (tag is None or peer.announcement.run == tag)
        ]

    def pick_to_ping(self, rng: random.Random, count: int) -> list[PeerId]:
        """Whom to call next to know they are there: newcomers first, else anyone, now and then a silent one."""
        present = self.present()
        here = [peer.id for peer in present if peer.heard is None] or [peer.id for peer in present]
        silent = [peer.id for peer in self if peer.silent and not peer.announcement.left]
        picks = rng.sample(here, min(count, len(here)))
        if silent and (not picks or rng.random() < 0.2):
            picks.append(rng.choice(silent))
        return picks
