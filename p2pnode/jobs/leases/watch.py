"""When a node may work under a lease, and when it takes one over. Pure: the time is an argument.

No clocks of two machines are compared. An owner works for `confirm` seconds of its own clock after it made the latest
renewal that another member showed to know. Others wait until the owner's renewals have not moved for `silence` seconds
of *their* clock, and a while longer according to their place in an order that all agree on, so that rarely two take
over at once. Whoever knows renewal n waits from a time after n was made: so an owner stops before they take over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from blake3 import blake3

from ...wire.types import Seconds
from .lease import (
    MAX_LEAP,
    Lease,
    Renewal,
    Signer,
    accept,
    check_lease,
    check_offer,
    check_renewal,
    lease_id,
    offer,
    rank,
    renew,
    take,
)


@dataclass(frozen=True)
class LeaseTimes:
    """How long things may take, in seconds. `confirm` must be well below `silence`."""

    renew: Seconds = 5.0  # between two renewals
    confirm: Seconds = 20.0  # that an owner works after it made the latest renewal that another member knows
    silence: Seconds = 30.0  # of renewals, until others may take over
    turn: Seconds = 10.0  # that each place in the order waits longer
    first: Seconds = 2.0  # the same before anybody has ever owned it

    @classmethod
    def lasting(cls, seconds: Seconds) -> LeaseTimes:
        """The times of a lease that is taken over after `seconds` of silence."""
        return cls(seconds / 6, seconds * 2 / 3, seconds, seconds / 3, min(2.0, seconds / 15))


class LeaseWatch:
    """What one node knows about one lease, and what it may do."""

    def __init__(self, me: Signer, scope: str, name: str, times: LeaseTimes, now: Seconds) -> None:
        self.lease: Lease | None = None
        self.renewal: Renewal | None = None
        self.handovers = 0  # leases seen after the first
        self._me = me
        self._scope = scope
        self._name = name
        self.times = times
        self._moved = now  # when the lease or its renewal last moved
        self._confirmed: Seconds | None = None  # when this node made the latest renewal that another member knows
        self._made: dict[int, Seconds] = {}  # when this node made its latest renewals, by number; -1: the lease itself
        self._renewed = now - times.renew
        self._given = b""  # id of this node's lease that it has offered to another: it works no longer

    # ---- what others say ----

    def learn(self, lease: Lease, renewal: Renewal | None, now: Seconds) -> bool:
        """Take in what another member knows. Returns whether this node follows another lease from now on.

        ValueError when the lease or renewal is invalid or too far ahead; then nothing has changed.
        """
        known = rank(self.lease)
        if rank(lease) < known:
            return False
        if rank(lease) > known:
            if lease.term > max(0, known[0]) + MAX_LEAP:
                raise ValueError(f"term {lease.term} is too far ahead of {known[0]}")
            check_lease(lease, self._scope, self._name)
            if renewal is not None:
                check_renewal(renewal, lease)
            self.handovers += self.lease is not None
            self._follow(lease, renewal, now)
            return True
        if renewal is not None and renewal.number > self.number:
            check_renewal(renewal, lease)
            self.renewal, self._moved = renewal, now
        return False

    def confirmed(self, known: bytes, number: int) -> None:
        """Another member knows the lease with this id and none of higher rank, and its renewal of this number (or -1).

        However late its answer comes: it counts from when this node made that renewal.
        """
        if self.mine and self.lease is not None and known == lease_id(self.lease) and number in self._made:
            self._confirmed = max(self._made[number], self._confirmed or self._made[number])

    def restore(self, lease: Lease, now: Seconds) -> None:
        """What this node knew before a restart. A lease of its own is not used again: it begins a new term."""
        self._follow(lease, None, now)
        if self.mine:
            self._given = lease_id(lease)

    # ---- what this node may do ----

    @property
    def stopped(self) -> bool:
        """Whether this node owns it and works no longer in this term: it restarted, or nobody accepted its offer."""
        return self.mine and self.lease is not None and self._given == lease_id(self.lease)

    @property
    def mine(self) -> bool:
        """Whether this node owns it, as far as it knows; `works` says whether it may act on that."""
        return self.lease is not None and self.lease.owner == self._me.peer_id

    @property
    def number(self) -> int:
        """Of the latest renewal; -1 before the first."""
        return -1 if self.renewal is None else self.renewal.number

    def works(self, now: Seconds, alone: bool) -> bool:
        """Whether this node may work as the owner. `alone`: it knows of no other member that could confirm it."""
        if not self.mine or self.stopped:
            return False
        if alone and self._confirmed is None:
            return True
        return self._confirmed is not None and now - self._confirmed < self.times.confirm

    def renew(self, now: Seconds) -> None:
        """Renew this node's own lease, if that is due."""
        if not self.mine or self.lease is None or now - self._renewed < self.times.renew:
            return
        self._renewed = now
        if self.works(now, alone=True):  # an owner that nobody confirms falls silent, so that others take over
            self.renewal, self._moved = renew(self._me, self.lease, self.number + 1), now
            self._made = {number: at for number, at in self._made.items() if now - at < self.times.confirm}
            self._made[self.number] = now

    def silent(self, now: Seconds) -> Seconds:
        """For how long neither the lease nor its renewal has moved."""
        return now - self._moved

    def slept(self, seconds: Seconds) -> None:
        """This node itself did nothing for so long, because its machine was busy or stopped: that is no silence."""
        self._moved += seconds

    def due(self, now: Seconds, members: Iterable[str], distrusted: bool = False) -> bool:
        """Whether it is this node's turn to take it: nobody owns it, or its owner has been silent for long enough.

        `distrusted`: the owner has no right to it in this node's eyes, so its renewals are not waited for.
        """
        place = turn_order(self._name, {*members, self._me.peer_id}).index(self._me.peer_id)
        if self.lease is None or distrusted:
            return self.silent(now) >= place * self.times.first
        return self.silent(now) >= self.times.silence + place * self.times.turn

    def proposed(self) -> Lease:
        """The lease that `take` would give. Put it on disk first: after a crash its term must not be used again."""
        return take(self._me, self._scope, self._name, self.lease)

    def take(self, now: Seconds) -> Lease:
        """Take it over, or take it first. The lease must be on disk before this node acts on it."""
        self.handovers += self.lease is not None
        lease = self.proposed()
        self._follow(lease, None, now)
        return lease

    def offer(self, to: str) -> Lease:
        """Offer this node's lease to another member. It works no longer, whatever becomes of the offer."""
        if not self.mine or self.lease is None:
            raise ValueError("only the owner hands a lease over")
        self._given = lease_id(self.lease)
        return offer(self._me, self.lease, to)

    def accept(self, offered: Lease, giver: str, now: Seconds) -> Lease:
        """Accept an offer of the owner that this node knows; ValueError when it is not valid or out of date."""
        check_offer(offered, self._scope, self._name, giver, self._me.peer_id)
        if self.lease is None or offered.previous != lease_id(self.lease) or self.lease.owner != giver:
            raise ValueError("the offer does not follow the lease that is known here")
        self.handovers += 1
        lease = accept(self._me, offered)
        self._follow(lease, None, now)
        return lease

    def _follow(self, lease: Lease, renewal: Renewal | None, now: Seconds) -> None:
        self.lease, self.renewal, self._moved = lease, renewal, now
        self._confirmed, self._renewed, self._made = None, now - self.times.renew, {-1: now}


def turn_order(name: str, members: Iterable[str]) -> list[str]:
    """The order in which members take a lease over: another one for each name, the same at every node."""
    return sorted(members, key=lambda peer: blake3(f"{name}\0{peer}".encode()).digest())
