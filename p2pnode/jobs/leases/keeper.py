"""Keeps leases at one node: takes one when it is this node's turn, renews it, hands it over, and puts it on disk.

How members hear of leases is the business of the kind of work, which passes on what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from ...network.base import Clock
from ...wire.errors import LocalProblem, NetworkDown, PeerError, PeerRefused
from ...wire.ids import PeerId
from ...wire.types import Seconds, decoded
from ..contract import JobContext
from .lease import Lease, Renewal, lease_id
from .messages import LeaseTaken, OfferLease
from .watch import LeaseTimes, LeaseWatch

LOOK_EVERY: Seconds = 0.5
LONELY = 10.0  # times the lease that a node without the others waits before it goes on by itself
MAX_LEASE_BYTES = 4096

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Lease)


class Company:
    """Whether there is anybody who could confirm this node's leases."""

    def __init__(self, members: Callable[[], Collection[str]], clock: Clock, patience: Seconds, first: bool) -> None:
        """After `patience` seconds without `members` a node is alone; at once if it is the run's `first` node."""
        self._members = members
        self._clock = clock
        self._patience = patience
        self._accompanied: Seconds | None = None if first else clock.monotonic()  # when another member was last there

    def expect_others(self) -> None:
        """Others may have gone on while this node was away: it waits for them before it is alone."""
        self._accompanied = self._clock.monotonic()

    def alone(self) -> bool:
        """Whether nobody has come yet, or all have been gone for long."""
        if self._members():
            self.expect_others()
            return False
        return self._accompanied is None or self._clock.monotonic() - self._accompanied > self._patience

    def cut_off(self) -> bool:
        """Whether others should be there and none is: nobody could confirm a lease."""
        return not self._members() and not self.alone()


class LeaseKeeper:
    """One lease of a job, as this node knows it and acts on it."""

    def __init__(
        self,
        context: JobContext,
        watch: LeaseWatch,
        company: Company,
        store: Callable[[Lease], None],
        changed: Callable[[], None],
    ) -> None:
        """`store` puts a lease on disk; `changed` is called when it has another owner."""
        self.watch = watch
        self._context = context
        self._company = company
        self._store = store
        self._changed = changed
        self._looked: Seconds | None = None
        self._heard = asyncio.Event()  # a member has said what it knows, since the start

    @property
    def _now(self) -> Seconds:
        return self._context.services.seams.clock.monotonic()

    @property
    def owner(self) -> str:
        """Who owns it as far as this node knows; "" when nobody does."""
        return "" if self.watch.lease is None else self.watch.lease.owner

    @property
    def term(self) -> int | None:
        return None if self.watch.lease is None else self.watch.lease.term

    def works(self) -> bool:
        """Whether this node may act as the owner now."""
        return self.watch.works(self._now, self._company.alone())

    # ---- what members say ----

    def hear(self, lease: Lease | None, renewal: Renewal | None) -> bool:
        """Take in what a member knows; returns whether there is another owner. ValueError when it is not valid."""
        changed = False
        if lease is not None:
            changed = self.watch.learn(lease, renewal, self._now)
            self.watch.confirmed(lease_id(lease), -1 if renewal is None else renewal.number)
            if changed:
                self._changed()
        self._heard.set()
        return changed

    def accept(self, giver: PeerId, offered: Lease) -> LeaseTaken:
        """Take over what its owner offers; PeerRefused when the offer is not valid or out of date."""
        try:
            lease = self.watch.accept(offered, giver, self._now)
        except ValueError as problem:
            raise PeerRefused("offer", str(problem)) from None
        self._changed()
        return LeaseTaken(lease)

    async def give(self, to: str) -> None:
        """Hand it over. Should that fail, this node takes it again in a later term."""
        offered = self.watch.offer(to)
        try:
            answer = await self._context.calls.ask(PeerId(to), OfferLease(offered), LeaseTaken)
            self.hear(answer.lease, None)
        except (PeerError, NetworkDown):
            return
        except ValueError as problem:
            self._context.services.fault(to, f"lease of {offered.name}: {problem}")

    # ---- keeping it ----

    async def run(self) -> None:
        """Take and renew the lease when that is due, until cancelled."""
        if not self._company.alone():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.watch.times.silence):
                    await self._heard.wait()
        while True:
            await self.look(self._context.members())
            await asyncio.sleep(LOOK_EVERY)

    async def look(self, members: Collection[str], outdone: bool = False, distrusted: bool = False) -> None:
        """Take the lease if it is this node's turn, and renew it. To be called every LOOK_EVERY seconds.

        `outdone`: this node owns it in a term that is over. `distrusted`: its owner has no right to it.
        """
        now = self._now
        late = 0.0 if self._looked is None else now - self._looked - LOOK_EVERY
        self._looked = now
        if late > LOOK_EVERY:
            self.watch.slept(late)
        if self.watch.stopped or outdone or self.watch.due(now, members, distrusted):
            await self._take()
        self.watch.renew(self._now)

    async def _take(self) -> None:
        """Take it over, once the lease is on disk. A node that is cut off waits."""
        if self._company.cut_off():
            return
        services, lease = self._context.services, self.watch.proposed()
        try:
            await services.seams.disk(partial(self._store, lease))
        except LocalProblem as problem:
            services.events.say("disk", f"the lease of {lease.name} waits for the disk: {problem}", warning=True)
            return
        if self.watch.proposed() == lease:  # nobody else has taken it meanwhile
            self.watch.take(self._now)
            self._changed()


def open_lease(context: JobContext, name: str, seconds: Seconds, changed: Callable[[], None]) -> LeaseKeeper:
    """The only lease of a job, with what this node knew of it before a restart. Others take it after `seconds`."""
    seams, me = context.services.seams, context.services.identity
    file, now = f"{context.folder}/lease-{name}", seams.clock.monotonic()
    watch = LeaseWatch(me, f"{context.calls.scope}/{name}", name, LeaseTimes.lasting(seconds), now)
    restored = False
    with contextlib.suppress(ValueError):
        content = seams.storage.read(file)
        if content is not None:
            watch.restore(decoded(_decoder, content, "lease", MAX_LEASE_BYTES), now)
            restored = True
    first = context.founder == me.peer_id and not restored
    company = Company(context.members, seams.clock, LONELY * seconds, first)
    return LeaseKeeper(
        context, watch, company, lambda lease: seams.storage.write(file, _encoder.encode(lease)), changed
    )
