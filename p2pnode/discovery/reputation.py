"""How a peer has behaved: a fault counter that fades, and a rate limit on what it may ask."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..wire.bounded import keep_newest
from ..wire.ids import PeerId

FADE_SECONDS = 60.0  # one fault is forgiven per this time
FAULTS_TO_IGNORE = 20.0
CALLS_PER_SECOND = 50.0
CALLS_AT_ONCE = 200.0
MAX_PEERS = 4096


@dataclass
class _Behaviour:
    faults: float = 0.0
    total_faults: int = 0
    credit: float = CALLS_AT_ONCE
    seen: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)


class Reputation:
    """Counts what peers do wrong. `now` is monotonic time."""

    def __init__(self) -> None:
        self._peers: dict[str, _Behaviour] = {}

    def fault(self, peer: str, why: str, now: float) -> None:
        behaviour = self._at(peer, now)
        behaviour.faults += 1
        behaviour.total_faults += 1
        reason = why[:40]
        if reason in behaviour.reasons or len(behaviour.reasons) < 16:
            behaviour.reasons[reason] = behaviour.reasons.get(reason, 0) + 1

    def ignored(self, peer: str, now: float) -> bool:
        """Whether the peer has so many recent faults that it gets no answers for a while."""
        return peer in self._peers and self._at(peer, now).faults >= FAULTS_TO_IGNORE

    def admit_call(self, peer: str, now: float) -> bool:
        """Take one call from the peer's allowance; False when it asks too much."""
        behaviour = self._at(peer, now)
        if behaviour.credit < 1:
            return False
        behaviour.credit -= 1
        return True

    def faults_of(self, peer: str) -> int:
        return self._peers[peer].total_faults if peer in self._peers else 0

    def reasons_of(self, peer: str) -> dict[str, int]:
        return dict(self._peers[peer].reasons) if peer in self._peers else {}

    def _at(self, peer: str, now: float) -> _Behaviour:
        behaviour = self._peers.get(peer)
        if behaviour is None:
            self._forget_someone()
            behaviour = self._peers[peer] = _Behaviour(seen=now)
        passed = max(0.0, now - behaviour.seen)
        behaviour.seen = now
        behaviour.faults = max(0.0, behaviour.faults - passed / FADE_SECONDS)
        behaviour.credit = min(CALLS_AT_ONCE, behaviour.credit + passed * CALLS_PER_SECOND)
        return behaviour

    def _forget_someone(self) -> None:
        """Stay bounded: forget the best behaved of those longest unseen."""
        if len(self._peers) >= MAX_PEERS:
            del self._peers[min(self._peers, key=lambda peer: (self._peers[peer].faults, self._peers[peer].seen))]


MOST = 2000  # peers remembered
KEEP = 0.5  # of what earlier exchanges said
LEAST = 0.02  # what one is worth with whom nothing ever goes well


class PartnerRecord:
    """This node's own experience; nothing that a peer says changes it."""

    def __init__(self) -> None:
        self._worth: dict[PeerId, float] = {}

    def note(self, peer: PeerId, well: bool) -> None:
        """One exchange went well, or came to nothing."""
        keep_newest(self._worth, peer, KEEP * self.worth(peer) + (1 - KEEP) * well, MOST)

    def worth(self, peer: PeerId) -> float:
        """From 1 for one with whom all goes well, or that was not asked yet, down to LEAST."""
        return max(LEAST, self._worth.get(peer, 1.0))

    def draw(self, peers: Sequence[PeerId], count: int, rng: random.Random) -> list[PeerId]:
        """So many by lot, all different, those of more worth more often; all of them where they are no more."""
        if len(peers) <= count:
            return list(peers)
        lots = {peer: rng.random() ** (1 / self.worth(peer)) for peer in peers}
        return sorted(sorted(peers, key=lots.__getitem__, reverse=True)[:count])
