"""Takes over the weights of another member, and serves newcomers that want ours.

outline    from one member: its position and the hash of each chunk of its weights
confirm    two other members say what they have at that position, even if they have gone on since
chunks     from all members with the same outline, in parallel when there are many; wrong chunks come from another one
adopt      go on from there; later entries come by exchanges
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ...discovery.services import Services
from ...network.base import Payload
from ...runtime.calls import JobCalls
from ...wire.errors import NetworkDown, PeerError, PeerRefused
from ...wire.ids import PeerId, short
from ...wire.types import MAX_PLACE_BYTES, Seconds
from ..capabilities import SharesEntries
from ..deltaset.snapshots import Unsuited
from ..policy import Policy
from .fetch import Fetching
from .messages import GetSnapshot, SnapshotRequest
from .offers import Offers
from .outline import Assembly, Outline, Snapshot, SnapshotVerdict, judge

OPINIONS = 2  # other members that must confirm a snapshot
MOST_ASKED = 6  # members asked to confirm, since not all may know that position
ASKED_AGAIN = 2  # times, while they lack some of its entries
ASK_PAUSE: Seconds = 0.5
UNCONFIRMED = 3  # snapshots that nobody can confirm, before one of them is taken
REPAIR_PAUSE: Seconds = 20.0  # between snapshots taken while training, and between warnings
_OVERHEAD = 1 << 20

Adopt = Callable[[Snapshot], None]  # heavy; Unsuited or ValueError when the snapshot cannot be used


@dataclass
class _Found:
    """One member's snapshot, and what other members have at its position."""

    giver: PeerId
    outline: Outline
    circle: str
    same: list[PeerId] = field(default_factory=list)
    other: list[PeerId] = field(default_factory=list)
    silent: list[PeerId] = field(default_factory=list)  # members that did not know, or were not asked

    @property
    def verdict(self) -> SnapshotVerdict:
        return judge(len(self.same), len(self.other))


class Snapshots:
    """Takes and serves the snapshots of one model."""

    def __init__(self, services: Services, calls: JobCalls, policy: Policy, circle: Callable[[], str]) -> None:
        """`circle` gives the name of the circle this node is in now."""
        self._services = services
        self._policy = policy
        self._circle = circle
        self.offers = Offers(policy, services.seams)
        self._fetching = Fetching(calls, services.fault)
        self._max_size = 8 * len(policy.readout()) + _OVERHEAD
        self._assembly: Assembly | None = None  # of a snapshot that is not complete
        self._repaired = self._warned = -REPAIR_PAUSE

    # ---- serving ----

    async def payload(self, peer: PeerId, request: SnapshotRequest) -> Payload:
        """The stream a newcomer asks for; PeerRefused when it is of another circle."""
        if isinstance(request, GetSnapshot) and request.circle != self._circle():
            raise PeerRefused("circle", "this node is in another circle")
        return await self.offers.payload(request)

    # ---- taking ----

    async def catch_up(self, partners: list[PeerId]) -> None:
        """Take a snapshot when entries are not enough: too many are missing, or our own weights are damaged."""
        self.offers.forget_old()
        entries, now = self._policy.can.entries, self._services.seams.clock.monotonic()
        if entries is None:
            return
        self._warn_of_mismatches(entries, now)
        if not entries.needs_snapshot or not partners or now - self._repaired < REPAIR_PAUSE:
            return
        self._repaired = now
        damaged = entries.agreement.damaged
        if damaged:
            text = "this node's weights are not the sum of its entries; taking those of others. "
            self._say(text + "If this happens again, check the machine's memory")
        if await self.adopt_from(partners):
            reason = "the weights are repaired" if damaged else "too far behind for entries"
            self._services.events.say("caught up", f"{reason}; took a snapshot")

    async def adopt_from(self, members: list[PeerId]) -> bool:
        """Start where a member of our circle is; False when no snapshot can be used."""
        circle = self._circle()

        def adopt(snapshot: Snapshot) -> None:
            if self._circle() != circle:
                raise Unsuited("this node has changed circles meanwhile")
            self._policy.adopt(snapshot)

        return await self.take_from(members, circle, adopt)

    async def take_from(self, members: list[PeerId], circle: str, adopt: Adopt, unconfirmed_ok: bool = True) -> bool:
        """Pass `adopt` a snapshot of a circle that other members confirm; returns whether one was adopted.

        If nobody can confirm or deny one, it is only taken with `unconfirmed_ok`.
        """
        unconfirmed: list[_Found] = []
        for giver in self._services.seams.rng.sample(members, len(members)):
            found = await self._find(giver, [member for member in members if member != giver], circle)
            if found is None:
                continue
            if found.verdict == "unknown" and (not unconfirmed_ok or (found.outline.place and len(members) > 1)):
                unconfirmed.append(found)
                if len(unconfirmed) < UNCONFIRMED:
                    continue
                break
            if found.verdict != "denied" and await self._adopt(found, adopt):
                return True
        for found in unconfirmed if unconfirmed_ok else []:
            if await self._adopt(found, adopt):
                return True
        return False

    async def _find(self, giver: PeerId, others: list[PeerId], circle: str) -> _Found | None:
        """A member's snapshot and the opinions of others; None when it has none to give."""
        try:
            outline = await self._fetching.outline(giver, self._max_size, circle)
            found = _Found(giver, outline, circle, silent=others)
        except (PeerError, NetworkDown):
            return None
        await self._ask_others(found)
        if found.verdict == "denied":
            deniers = " and ".join(map(short, found.other))
            if len(found.other) >= OPINIONS:
                self._services.fault(giver, "snapshot: others have different weights at its position")
            self._say(f"the snapshot of {short(giver)} differs from what {deniers} have at its position; not taken")
        return found

    async def _ask_others(self, found: _Found) -> None:
        """Ask until enough members have an opinion. One that lacks an entry now may have it in a moment."""
        if not 0 < len(found.outline.place) <= MAX_PLACE_BYTES:
            return
        for again in range(1 + ASKED_AGAIN):
            for place in range(0, min(len(found.silent), MOST_ASKED), OPINIONS):
                await asyncio.gather(*(self._opinion(peer, found) for peer in found.silent[place : place + OPINIONS]))
                if len(found.same) + len(found.other) >= OPINIONS:
                    break
            answered = {*found.same, *found.other}
            found.silent = [peer for peer in found.silent if peer not in answered]
            if answered or not found.silent or again == ASKED_AGAIN:
                return
            await asyncio.sleep(ASK_PAUSE)

    async def _opinion(self, peer: PeerId, found: _Found) -> None:
        """Note whether another member has the same at a snapshot's position, if it knows."""
        try:
            theirs = await self._fetching.outline(peer, self._max_size, found.circle, found.outline.place)
        except (PeerError, NetworkDown):
            return
        (found.same if theirs == found.outline else found.other).append(peer)

    async def _adopt(self, found: _Found, adopt: Adopt) -> bool:
        """Fetch the content of a snapshot and adopt it; False when that fails."""
        snapshot = await self._fetch(found)
        if snapshot is None:
            return False
        try:
            await self._services.seams.compute(lambda: adopt(snapshot))
        except Unsuited as error:
            self._say(f"the snapshot of {short(found.giver)} cannot be used: {error}")
            return False
        except ValueError as error:
            self._services.fault(found.giver, f"snapshot: {error}")
            return False
        if found.outline.place and not found.same:
            self._say(f"no other member could confirm the snapshot of {short(found.giver)}; it was taken unconfirmed")
        return True

    async def _fetch(self, found: _Found) -> Snapshot | None:
        """The content from all who have it; if they are gone, from others that can compute the same."""
        self._assembly = assembly = Assembly(found.outline, self._assembly)
        fetching, sources = self._fetching, [found.giver, *found.same]
        kept, _ = await asyncio.gather(fetching.kept(found.giver, found.outline), fetching.fill(assembly, sources))
        if not assembly.complete:
            found.same = []
            await self._ask_others(found)
            await fetching.fill(assembly, found.same)
        if not assembly.complete:
            return None
        self._assembly = None
        return Snapshot(found.outline.place, assembly.content, kept)

    # ---- warnings ----

    def _warn_of_mismatches(self, entries: SharesEntries, now: Seconds) -> None:
        differs = sorted(entries.agreement.differs)
        if differs and now - self._warned >= REPAIR_PAUSE:
            self._warned = now
            who = " and ".join(map(short, differs))
            text = f"{who} and this node have the same entries but different weights; checking ours. "
            self._say(text + "If this stays so, one of the machines computes wrongly: compare `p2pnode export` of both")

    def _say(self, text: str) -> None:
        self._services.events.say("snapshot", text, warning=True)
