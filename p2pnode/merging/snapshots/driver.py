"""Snapshots: taking over where another member is, and giving newcomers what they need for that.

outline    from one member: where it is, and the hash of each chunk of its weights
truth      two others say what they have at that place; they need not be there any more
chunks     from all who have the same, at once when they are many; one that is wrong comes from elsewhere
adopt      and go on from there; entries after it come by exchanges
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

OPINIONS = 2  # other members that a snapshot's truth is asked of
MOST_ASKED = 6  # for them, since not all may know that place
ASKED_AGAIN = 2  # times, while they do not have all of its entries yet
ASK_PAUSE: Seconds = 0.5
UNCONFIRMED = 3  # snapshots that nobody confirms, before one of them is taken
MEND_PAUSE: Seconds = 20.0  # between snapshots taken while learning, and between words about one thing
_OVERHEAD = 1 << 20

Adopt = Callable[[Snapshot], None]  # heavy; Unsuited or ValueError when it cannot be used


@dataclass
class _Found:
    """One member's snapshot, and what others say of it."""

    giver: PeerId
    outline: Outline
    circle: str
    same: list[PeerId] = field(default_factory=list)
    other: list[PeerId] = field(default_factory=list)
    silent: list[PeerId] = field(default_factory=list)  # members that could not say, or were not asked

    @property
    def verdict(self) -> SnapshotVerdict:
        return judge(len(self.same), len(self.other))


class Snapshots:
    """One model's snapshots, both ways."""

    def __init__(self, services: Services, calls: JobCalls, policy: Policy, circle: Callable[[], str]) -> None:
        """`circle` gives the name of the circle this node is in now."""
        self._services = services
        self._policy = policy
        self._circle = circle
        self.offers = Offers(policy, services.seams)
        self._fetching = Fetching(calls, services.fault)
        self._max_size = 8 * len(policy.readout()) + _OVERHEAD
        self._assembly: Assembly | None = None  # of a snapshot that did not come whole
        self._mended = self._told = -MEND_PAUSE

    # ---- giving ----

    async def payload(self, peer: PeerId, request: SnapshotRequest) -> Payload:
        """What a newcomer asked for."""
        if isinstance(request, GetSnapshot) and request.circle != self._circle():
            raise PeerRefused("circle", "this node is in another circle")
        return await self.offers.payload(request)

    # ---- taking ----

    async def catch_up(self, partners: list[PeerId]) -> None:
        """Take a snapshot when entries are not enough: too many are missing, or our own weights are wrong."""
        self.offers.forget_old()
        entries, now = self._policy.can.entries, self._services.seams.clock.monotonic()
        if entries is None:
            return
        self._tell_of_mismatches(entries, now)
        if not entries.needs_snapshot or not partners or now - self._mended < MEND_PAUSE:
            return
        self._mended = now
        damaged = entries.agreement.damaged
        if damaged:
            text = "this node's weights are not what its entries make; taking those of others. "
            self._say(text + "If this comes again, check the machine's memory")
        if await self.adopt_from(partners):
            why = "the weights are those of the others again" if damaged else "too far behind for entries"
            self._services.events.say("caught up", f"{why}; took a snapshot")

    async def adopt_from(self, members: list[PeerId]) -> bool:
        """Start where a member of our circle is; False when that cannot be."""
        circle = self._circle()

        def adopt(snapshot: Snapshot) -> None:
            if self._circle() != circle:
                raise Unsuited("this node has gone to another circle meanwhile")
            self._policy.adopt(snapshot)

        return await self.take_from(members, circle, adopt)

    async def take_from(self, members: list[PeerId], circle: str, adopt: Adopt, on_its_word: bool = True) -> bool:
        """A snapshot of a circle that other members confirm, or one that nobody can say anything of, for `adopt`.

        The latter only where it may be taken on its giver's word.
        """
        unconfirmed: list[_Found] = []
        for giver in self._services.seams.rng.sample(members, len(members)):
            found = await self._find(giver, [member for member in members if member != giver], circle)
            if found is None:
                continue
            if found.verdict == "unknown" and (not on_its_word or (found.outline.place and len(members) > 1)):
                unconfirmed.append(found)
                if len(unconfirmed) < UNCONFIRMED:
                    continue
                break
            if found.verdict != "denied" and await self._adopt(found, adopt):
                return True
        for found in unconfirmed if on_its_word else []:
            if await self._adopt(found, adopt):
                return True
        return False

    async def _find(self, giver: PeerId, others: list[PeerId], circle: str) -> _Found | None:
        """A member's snapshot and what others say of it; None when it has none to give."""
        try:
            outline = await self._fetching.outline(giver, self._max_size, circle)
            found = _Found(giver, outline, circle, silent=others)
        except (PeerError, NetworkDown):
            return None
        await self._ask_others(found)
        if found.verdict == "denied":
            wrong = " and ".join(map(short, found.other))
            if len(found.other) >= OPINIONS:
                self._services.fault(giver, "snapshot: others have other weights there")
            self._say(f"the snapshot of {short(giver)} is not what {wrong} have at its place; not taken")
        return found

    async def _ask_others(self, found: _Found) -> None:
        """Until enough have an opinion. One that lacks an entry now may have it in a moment."""
        if not 0 < len(found.outline.place) <= MAX_PLACE_BYTES:
            return
        for again in range(1 + ASKED_AGAIN):
            for place in range(0, min(len(found.silent), MOST_ASKED), OPINIONS):
                await asyncio.gather(*(self._opinion(peer, found) for peer in found.silent[place : place + OPINIONS]))
                if len(found.same) + len(found.other) >= OPINIONS:
                    break
            told = {*found.same, *found.other}
            found.silent = [peer for peer in found.silent if peer not in told]
            if told or not found.silent or again == ASKED_AGAIN:
                return
            await asyncio.sleep(ASK_PAUSE)

    async def _opinion(self, peer: PeerId, found: _Found) -> None:
        """What another member has at a snapshot's place, if it can say."""
        try:
            theirs = await self._fetching.outline(peer, self._max_size, found.circle, found.outline.place)
        except (PeerError, NetworkDown):
            return
        (found.same if theirs == found.outline else found.other).append(peer)

    async def _adopt(self, found: _Found, adopt: Adopt) -> bool:
        """Fetch the content of a snapshot and go on from it."""
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
            self._say(f"no other member could confirm the snapshot of {short(found.giver)}; it was taken on its word")
        return True

    async def _fetch(self, found: _Found) -> Snapshot | None:
        """The content from all who have it; when they are gone, others that can make the same go on where they were."""
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

    # ---- saying ----

    def _tell_of_mismatches(self, entries: SharesEntries, now: Seconds) -> None:
        differs = sorted(entries.agreement.differs)
        if differs and now - self._told >= MEND_PAUSE:
            self._told = now
            who = " and ".join(map(short, differs))
            text = f"{who} and this node have the same entries but different weights; checking our own. "
            self._say(text + "If it stays so, one of the machines computes wrongly: compare `p2pnode export` of both")

    def _say(self, text: str) -> None:
        self._services.events.say("snapshot", text, warning=True)
