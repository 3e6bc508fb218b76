"""Looking after shards by the clock: who should keep them, whom to do without, what to take over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from blake3 import blake3

from ..wire.ids import PeerId
from ..wire.types import Seconds
from .handoff.certificate import copies_wanted
from .handoff.state import ClaimShard, Drop, HandoffEvent, Renew, ShardState, TakeOver, is_mine, unconfirmed
from .store import ShardStore, StoredShard


@dataclass(frozen=True)
class CareRules:
    """When patience ends."""

    period: Seconds = 2.0
    meet_anyone_every: int = 5  # periods
    keeper_gone: Seconds = 120.0  # a keeper not there, or not confirming, for so long is replaced
    holder_gone: Seconds = 240.0  # its first keeper takes over; the next ones wait as long again each
    offer_open: Seconds = 30.0
    renewals_at_once: int = 32  # shards whose new keepers have yet to confirm
    look_at_once: int = 4  # files checked in one period


class ShardMaintenance:
    """What should happen to this node's shards. Decides from who is there and since when; does nothing itself."""

    def __init__(
        self, run: str, shard_store: ShardStore, members: Callable[[], list[PeerId]], rules: CareRules
    ) -> None:
        self.moving: set[str] = set()  # given away for want of room: dropped once released
        self._run = run
        self._shard_store = shard_store
        self._members = members
        self._rules = rules
        self._begun: Seconds | None = None
        self._seen: dict[str, Seconds] = {}
        self._since: dict[str, tuple[bytes, Seconds]] = {}  # when each certificate became known

    def look(self, now: Seconds) -> None:
        """Note who is there."""
        self._begun = now if self._begun is None else self._begun
        self._seen |= dict.fromkeys(self._members(), now)

    def gone(self, peer: str, now: Seconds) -> Seconds:
        """For how long a peer has not been there."""
        return 0.0 if peer == self._shard_store.me else now - self._seen.get(peer, self._begun or now)

    def keepers(self, shard: str, first: str, liked: Iterable[str] = (), not_: Iterable[str] = ()) -> tuple[str, ...]:
        """As many as there should be, `first` and then those liked that are there; the others by rendezvous hashing."""
        here = [peer for peer in self.order(shard) if peer not in set(not_)]
        chosen = dict.fromkeys((first, *(peer for peer in liked if peer in here), *here))
        return tuple(chosen)[: copies_wanted(len({*here, first}))]

    def order(self, shard: str) -> list[str]:
        """All who are there, by rendezvous hashing."""
        here = {self._shard_store.me, *self._members()}
        return sorted(here, key=lambda peer: blake3(f"{shard}/{peer}".encode()).digest(length=8))

    def decide(self, now: Seconds) -> list[tuple[str, HandoffEvent]]:
        """What should happen now, a bounded number of things at a time."""
        me, events, left = self._shard_store.me, [], self._rules.renewals_at_once
        left -= sum(1 for entry in self._shard_store.entries.values() if self._awaits(entry.state, now))
        for shard, entry in self._shard_store.entries.items():
            event = self._decide(shard, entry, now)
            if isinstance(event, ClaimShard | Renew) and any(peer != me for peer in event.keepers):
                left -= 1
                if left < 0 and isinstance(event, Renew):
                    continue
                event = (
                    ClaimShard(event.run, event.shard, (me,)) if left < 0 and isinstance(event, ClaimShard) else event
                )
            if event is not None:
                events.append((shard, event))
        return events

    def _awaits(self, state: ShardState, now: Seconds) -> bool:
        me = self._shard_store.me
        here = [peer for peer in unconfirmed(state, me) if self.gone(peer, now) == 0]
        return is_mine(state, me) and bool(here)

    def _decide(self, shard: str, entry: StoredShard, now: Seconds) -> HandoffEvent | None:
        state, me, rules = entry.state, self._shard_store.me, self._rules
        highest = state.record.highest
        if not state.have:
            return None
        if highest is None:
            waited = now - (self._begun or now) >= rules.keeper_gone
            return ClaimShard(self._run, shard, self.keepers(shard, me)) if not entry.received or waited else None
        known_for = self._known_for(shard, state, now)
        if highest.to == me:
            return self._renewal(shard, state, now, known_for)
        if state.record.kept:
            place = list(highest.keepers).index(me) if me in highest.keepers else len(highest.keepers)
            patience = rules.holder_gone * max(1, place)
            late = min(self.gone(highest.to, now), known_for) >= patience
            return TakeOver(self.keepers(shard, me, highest.keepers)) if late else None
        return Drop() if shard in self.moving else None

    def _renewal(self, shard: str, state: ShardState, now: Seconds, known_for: Seconds) -> HandoffEvent | None:
        """Other keepers, when that brings somebody new; an offer nobody answers is taken back."""
        highest, me, rules = state.record.highest, self._shard_store.me, self._rules
        assert highest is not None
        if state.offer is not None and known_for < rules.offer_open:
            return None
        without = [peer for peer in highest.keepers if self.gone(peer, now) >= rules.keeper_gone]
        if known_for >= rules.keeper_gone:
            without += [peer for peer in unconfirmed(state, me) if self.gone(peer, now) == 0]
        enough = len(highest.keepers) >= copies_wanted(len(self._members()) + 1)
        if enough and not without and not highest.takeover and state.offer is None:
            return None
        wanted = self.keepers(shard, me, (peer for peer in highest.keepers if peer not in without), without)
        better = bool(set(wanted) - set(highest.keepers))
        return Renew(wanted) if better or highest.takeover else None

    def _known_for(self, shard: str, state: ShardState, now: Seconds) -> Seconds:
        """How long the certificate and the offer have been as they are."""
        offer, highest = state.offer, state.record.highest
        mark = (highest.giver_signature if highest else b"") + (offer.giver_signature if offer else b"")
        if self._since.get(shard, (b"", 0.0))[0] != mark:
            self._since[shard] = (mark, now)
        return now - self._since[shard][1]
