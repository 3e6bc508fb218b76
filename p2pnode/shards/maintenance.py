"""Periodic maintenance of shards: assigns keepers, replaces unresponsive ones, takes over shards of absent holders.

Also decides whether a shard that a peer offers is accepted. All of it decides only; the driver carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from blake3 import blake3

from ..wire.ids import PeerId
from ..wire.types import Seconds
from .handoff.certificate import copies_wanted
from .handoff.state import ClaimShard, Drop, HandoffEvent, Renew, ShardState, TakeOver, is_mine, unconfirmed
from .store import StoredShard

ONE_PEERS_SHARE = 0.5  # of the room, that shards offered by one peer may take
NO_ROOM = "no room"


class Room(NamedTuple):
    """Space for samples on disk."""

    limit_bytes: int
    kept_bytes: int  # that may not be dropped
    leaving: bool = False  # the node accepts nothing any more

    @property
    def free_bytes(self) -> int:
        """Space for more, counting what may be dropped as free."""
        return max(0, self.limit_bytes - self.kept_bytes)


def refusal(room: Room, state: ShardState, kept_bytes_from_peer: int) -> str:
    """The reason for which an offered shard is declined at once; "" when it is not."""
    if room.leaving:
        return "leaving"
    if state.have:
        return ""
    if kept_bytes_from_peer > room.limit_bytes * ONE_PEERS_SHARE:
        return "enough of yours"
    return "" if room.free_bytes > 0 else NO_ROOM


@dataclass(frozen=True)
class MaintenanceRules:
    """How often maintenance runs and how long it waits for others."""

    period: Seconds = 2.0
    sync_anyone_every: int = 5  # periods; members with news are contacted in every period
    keeper_gone: Seconds = 120.0  # a keeper absent or not confirming for this long is replaced
    holder_gone: Seconds = 240.0  # then the first keeper takes over; each further keeper waits as long again
    offer_open: Seconds = 30.0
    renewals_at_once: int = 32  # shards whose new keepers have not confirmed yet
    files_checked: int = 4  # in one period


class ShardMaintenance:
    """Decides which events should happen to this node's shards, from who is present and since when."""

    def __init__(
        self,
        run: str,
        me: PeerId,
        entries: Mapping[str, StoredShard],
        members: Callable[[], list[PeerId]],
        rules: MaintenanceRules,
    ) -> None:
        self.moving: set[str] = set()  # shards given away for want of room: dropped once they are released
        self._run = run
        self._me = me
        self._entries = entries
        self._members = members
        self._rules = rules
        self._begun: Seconds | None = None
        self._seen: dict[str, Seconds] = {}
        self._certificate_seen_at: dict[str, tuple[bytes, Seconds]] = {}  # by shard: its certificate, and since when

    def note_members(self, now: Seconds) -> None:
        """Note who is present."""
        self._begun = now if self._begun is None else self._begun
        self._seen |= dict.fromkeys(self._members(), now)

    def absent_for(self, peer: str, now: Seconds) -> Seconds:
        return 0.0 if peer == self._me else now - self._seen.get(peer, self._begun or now)

    def keepers(
        self, shard: str, first: str, preferred: Iterable[str] = (), excluded: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Chooses the keepers: `first`, then the preferred ones that are present, then by rendezvous hashing."""
        without = set(excluded)
        present = [peer for peer in self.order(shard) if peer not in without]
        chosen = dict.fromkeys((first, *(peer for peer in preferred if peer in present), *present))
        return tuple(chosen)[: copies_wanted(len({*present, first}))]

    def order(self, shard: str) -> list[str]:
        """All who are present, this node included, by rendezvous hashing."""
        present = {self._me, *self._members()}
        return sorted(present, key=lambda peer: blake3(f"{shard}/{peer}".encode()).digest(length=8))

    def decide(self, now: Seconds) -> list[tuple[str, HandoffEvent]]:
        """What should happen now. Only some shards at a time get new keepers, because each has to fetch the samples."""
        events: list[tuple[str, HandoffEvent]] = []
        left = self._rules.renewals_at_once
        left -= sum(1 for entry in self._entries.values() if self._awaits(entry.state, now))
        for shard, entry in self._entries.items():
            event = self._decide(shard, entry, now)
            if isinstance(event, ClaimShard | Renew) and any(peer != self._me for peer in event.keepers):
                left -= 1
                if left < 0:
                    event = event._replace(keepers=(self._me,)) if isinstance(event, ClaimShard) else None
            if event is not None:
                events.append((shard, event))
        return events

    def _awaits(self, state: ShardState, now: Seconds) -> bool:
        """Whether this node waits for a keeper who is present to confirm."""
        present = [peer for peer in unconfirmed(state, self._me) if self.absent_for(peer, now) == 0]
        return is_mine(state, self._me) and bool(present)

    def _decide(self, shard: str, entry: StoredShard, now: Seconds) -> HandoffEvent | None:
        state, me, rules = entry.state, self._me, self._rules
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
            late = min(self.absent_for(highest.to, now), known_for) >= patience
            return TakeOver(self.keepers(shard, me, highest.keepers)) if late else None
        return Drop() if shard in self.moving else None

    def _renewal(self, shard: str, state: ShardState, now: Seconds, known_for: Seconds) -> HandoffEvent | None:
        """Names other keepers when that brings somebody new, and takes back an offer that nobody answers."""
        highest, rules = state.record.highest, self._rules
        assert highest is not None
        if state.offer is not None and known_for < rules.offer_open:
            return None
        excluded = [peer for peer in highest.keepers if self.absent_for(peer, now) >= rules.keeper_gone]
        if known_for >= rules.keeper_gone:
            excluded += [peer for peer in unconfirmed(state, self._me) if self.absent_for(peer, now) == 0]
        enough = len(highest.keepers) >= copies_wanted(len(self._members()) + 1)
        if enough and not excluded and not highest.takeover and state.offer is None:
            return None
        preferred = [peer for peer in highest.keepers if peer not in excluded]
        wanted = self.keepers(shard, self._me, preferred, excluded)
        better = bool(set(wanted) - set(highest.keepers))
        return Renew(wanted) if better or highest.takeover else None

    def _known_for(self, shard: str, state: ShardState, now: Seconds) -> Seconds:
        """Returns how long certificate and offer have been unchanged."""
        offer, highest = state.offer, state.record.highest
        mark = (highest.giver_signature if highest else b"") + (offer.giver_signature if offer else b"")
        if self._certificate_seen_at.get(shard, (b"", 0.0))[0] != mark:
            self._certificate_seen_at[shard] = (mark, now)
        return now - self._certificate_seen_at[shard][1]
