"""How peers behave: a fault counter that fades, a limit on calls per second, and how exchanges with them went."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..wire.bounded import put_bounded
from ..wire.ids import PeerId

FADE_SECONDS = 60.0  # one fault is forgiven in this time
FAULTS_TO_IGNORE = 20.0
CALLS_PER_SECOND = 50.0
CALLS_AT_ONCE = 200.0
MAX_PEERS = 4096
MAX_REASONS = 16  # kinds of fault remembered of one peer


@dataclass
class _Behaviour:
    faults: float = 0.0
    total_faults: int = 0
    credit: float = CALLS_AT_ONCE
    seen: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)


class Reputation:
    """Counts each peer's faults and calls. `now` is monotonic time."""

    def __init__(self, on_ignored: Callable[[str, Mapping[str, int]], None] = lambda peer, reasons: None) -> None:
        """`on_ignored` is called when a peer gets ignored, with what it did wrong and how often."""
        self._on_ignored = on_ignored
        self._peers: dict[str, _Behaviour] = {}

    def fault(self, peer: str, reason: str, now: float) -> None:
        """Count a violation of the protocol."""
        behaviour = self._at(peer, now)
        before = behaviour.faults
        behaviour.faults += 1
        behaviour.total_faults += 1
        kind = reason[:40]
        if kind in behaviour.reasons or len(behaviour.reasons) < MAX_REASONS:
            behaviour.reasons[kind] = behaviour.reasons.get(kind, 0) + 1
        if before < FAULTS_TO_IGNORE <= behaviour.faults:
            self._on_ignored(peer, behaviour.reasons)

    def ignored(self, peer: str, now: float) -> bool:
        """Whether the peer has too many recent faults: then its requests are refused for now."""
        return peer in self._peers and self._at(peer, now).faults >= FAULTS_TO_IGNORE

    def admit_call(self, peer: str, now: float) -> bool:
        """Count one call by the peer. Returns False when it calls too often."""
        behaviour = self._at(peer, now)
        if behaviour.credit < 1:
            return False
        behaviour.credit -= 1
        return True

    def give_back(self, peer: str, now: float) -> None:
        """Do not count a call of the peer that was admitted."""
        behaviour = self._at(peer, now)
        behaviour.credit = min(CALLS_AT_ONCE, behaviour.credit + 1)

    def faults_of(self, peer: str) -> int:
        return self._peers[peer].total_faults if peer in self._peers else 0

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
        """Make room: forget the peer with the fewest faults, and among those the one not seen for longest."""
        if len(self._peers) >= MAX_PEERS:
            del self._peers[min(self._peers, key=lambda peer: (self._peers[peer].faults, self._peers[peer].seen))]


MAX_PARTNERS = 2000  # peers remembered
KEEP = 0.5  # weight of earlier exchanges
MIN_WORTH = 0.02  # of a partner after only failed exchanges


class PartnerRecord:
    """How exchanges with each peer went, from this node's own experience; nothing a peer says changes it.

    Peers that never answer or always refuse are asked seldom, but never given up.
    """

    def __init__(self) -> None:
        self._worth: dict[PeerId, float] = {}

    def note(self, peer: PeerId, succeeded: bool) -> None:
        """Record the outcome of one exchange."""
        put_bounded(self._worth, peer, KEEP * self.worth(peer) + (1 - KEEP) * succeeded, MAX_PARTNERS)

    def worth(self, peer: PeerId) -> float:
        """Return 1 for a partner whose exchanges all succeed or that was never asked, down to MIN_WORTH."""
        return max(MIN_WORTH, self._worth.get(peer, 1.0))

    def draw(self, peers: Sequence[PeerId], count: int, rng: random.Random) -> list[PeerId]:
        """Draw `count` different peers at random, weighted by worth; all of them if there are no more."""
        if len(peers) <= count:
            return list(peers)
        lots = {peer: rng.random() ** (1 / self.worth(peer)) for peer in peers}
        return sorted(sorted(peers, key=lots.__getitem__, reverse=True)[:count])
