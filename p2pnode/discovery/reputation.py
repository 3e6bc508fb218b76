"""How a peer has behaved: a fault counter that fades, and a rate limit on what it may ask."""

from __future__ import annotations

from dataclasses import dataclass, field

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
