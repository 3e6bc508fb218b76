"""Keeps one lease at one node: takes it when it is this node's turn, renews it, hands it over, and puts it on disk.

How members hear of leases is the business of the kind of work, which passes on what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import msgspec

from ...wire.errors import LocalProblem, PeerRefused
from ...wire.ids import PeerId
from ...wire.types import Seconds, decoded
from ..contract import JobContext
from .lease import Lease, Renewal, lease_id
from .watch import LeaseTimes, LeaseWatch

LOOK_EVERY: Seconds = 0.5
LONELY = 10.0  # times the lease that a node without the others waits before it goes on by itself
MAX_LEASE_BYTES = 4096

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Lease)


class LeaseKeeper:
    """One lease of a job, as this node knows it."""

    def __init__(self, context: JobContext, name: str, seconds: Seconds, changed: Callable[[], None]) -> None:
        """`seconds` of silence let others take it over; `changed` is called when it has another owner."""
        self._context = context
        self._me = context.services.identity
        self._clock = context.services.seams.clock
        self._seconds = seconds
        self._changed = changed
        self._file = f"{context.folder}/lease-{name}"
        self._scope = f"{context.calls.scope}/{name}"
        self._name = name
        self._heard = asyncio.Event()  # set once a member has reported what it knows
        self.watch = LeaseWatch(self._me, self._scope, name, LeaseTimes.lasting(seconds), self._now)
        restored = self._restore()
        first = context.founder == self._me.peer_id and not restored
        self._accompanied: Seconds | None = None if first else self._now  # when it last knew of another member

    @property
    def _now(self) -> Seconds:
        return self._clock.monotonic()

    @property
    def owner(self) -> str:
        """Who owns it as far as this node knows; "" when nobody does."""
        return "" if self.watch.lease is None else self.watch.lease.owner

    @property
    def term(self) -> int | None:
        return None if self.watch.lease is None else self.watch.lease.term

    def works(self) -> bool:
        """Whether this node may act as the owner now."""
        return self.watch.works(self._now, self._alone())

    def _alone(self) -> bool:
        """Whether there is nobody who could confirm a lease: nobody has come yet, or all have been gone for long."""
        if self._context.members():
            self._accompanied = self._now
            return False
        return self._accompanied is None or self._now - self._accompanied > LONELY * self._seconds

    # ---- what members say ----

    def hear(self, lease: Lease | None, renewal: Renewal | None) -> None:
        """Take in what a member knows; ValueError when that is not valid."""
        if lease is not None:
            changed = self.watch.learn(lease, renewal, self._now)
            self.watch.confirmed(lease_id(lease), -1 if renewal is None else renewal.number)
            if changed:
                self._changed()
        self._heard.set()

    def accept(self, giver: PeerId, offered: Lease) -> Lease:
        """Take over what its owner offers; PeerRefused when the offer is not valid or out of date."""
        try:
            lease = self.watch.accept(offered, giver, self._now)
        except ValueError as problem:
            raise PeerRefused("offer", str(problem)) from None
        self._changed()
        return lease

    # ---- keeping it ----

    async def run(self) -> None:
        """Take and renew the lease when that is due, until cancelled."""
        if not self._alone():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), self._seconds)
        looked = self._now
        while True:
            late, looked = self._now - looked - LOOK_EVERY, self._now
            if late > LOOK_EVERY:
                self.watch.slept(late)
            if self.watch.stopped or self.watch.due(self._now, self._context.members()):
                await self._take()
            self.watch.renew(self._now)
            await asyncio.sleep(LOOK_EVERY)

    async def _take(self) -> None:
        """Take it over, once the lease is on disk."""
        seams, events, lease = self._context.services.seams, self._context.services.events, self.watch.proposed()
        try:
            await seams.disk(partial(seams.storage.write, self._file, _encoder.encode(lease)))
        except LocalProblem as problem:
            events.say("disk", f"the lease of {self._name} waits for the disk: {problem}", warning=True)
            return
        if self.watch.proposed() == lease:  # nobody else has taken it meanwhile
            self.watch.take(self._now)
            self._changed()

    def _restore(self) -> bool:
        """Go on from the lease on disk; returns whether there was one that can be read."""
        content = self._context.services.seams.storage.read(self._file)
        if content is None:
            return False
        try:
            lease = decoded(_decoder, content, "lease", MAX_LEASE_BYTES)
        except ValueError:
            return False
        self.watch.restore(lease, self._now)
        return True
