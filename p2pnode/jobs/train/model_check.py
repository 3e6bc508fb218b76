"""Compares what models compute at equal weights: this node asks partners what theirs makes of the run's probe.

The manifest's sketch (binding.py) tells most differences before a node trains, with any policy. This tells the rest:
functions that differ only at weights that were trained, and runs whose founder could not make a sketch. It needs a
policy that shares entries, because only there do members pass through equal weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import combinations
from typing import Literal

from ...circles.members import Members
from ...discovery.services import Services
from ...merging.policy import Policy
from ...runtime.calls import JobCalls
from ...training.function_sketch import FunctionSketch, function_sketch
from ...training.host import ModelHost
from ...wire.bounded import put_bounded
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused, UsageError
from ...wire.ids import PeerId, sha256, short
from ...wire.types import Seconds
from .binding import LOSSES_DIFFER, OUTPUTS_DIFFER, different_outputs
from .messages import GetProbe, ProbeIs

ASKED_AT_ONCE = 3
ANSWERED_AT_ONCE = 4
CHECK_EVERY: Seconds = 10.0  # while nobody has agreed yet; after that more and more seldom, since weights change
MOST_SELDOM: Seconds = 3600.0
FIRST_TRIES = 5
FIRST_PAUSE: Seconds = 1.0
ASK_TIMEOUT: Seconds = 10.0
REMEMBERED = 8  # answers, by position
MAX_PARTNERS = 64

Verdict = Literal["same", "different", "unknown"]


def difference(theirs: FunctionSketch, mine: FunctionSketch) -> str:
    """How two models differ at equal weights, in words; "" when they do not."""
    if different_outputs(theirs.outputs, mine.outputs):
        return OUTPUTS_DIFFER
    return LOSSES_DIFFER if different_outputs(theirs.losses, mine.losses) else ""


def judge(differing: Mapping[PeerId, FunctionSketch], founder: PeerId, confirmed: bool) -> Verdict:
    """What follows when partners have other results than this node, at the same position, and none has the same.

    The run's model is the founder's, so the founder's results stop any other node. Other partners may lie: they cannot
    stop a node whose model agrees with the manifest (`confirmed`), and for others it takes two that agree.
    """
    if founder in differing:
        return "different"
    agree = any(not difference(one, other) for one, other in combinations(differing.values(), 2))
    return "different" if agree and not confirmed else "unknown"


class ModelCheck:
    """Asks partners for their results, again and again as the weights change, and answers partners that ask."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        policy: Policy,
        model_host: ModelHost,
        members: Members,
        founder: PeerId,
        confirmed: bool,
        same_probe: bool = True,
    ) -> None:
        self._services = services
        self._calls = calls
        self._policy = policy
        self._model_host = model_host
        self._members = members
        self._founder = founder
        self._confirmed = confirmed
        self._same_probe = same_probe
        self._known: dict[bytes, FunctionSketch] = {}  # by position, the latest last
        self._reported: dict[PeerId, None] = {}
        self._answering = 0

    async def first(self) -> None:
        """Waits a little for a partner that agrees, before training, if the manifest could not confirm the model.

        UsageError when the model is not the run's.
        """
        founded = self._services.identity.peer_id == self._founder
        for _ in range(0 if self._confirmed or founded else FIRST_TRIES):
            if await self._ask_some():
                return
            await asyncio.sleep(FIRST_PAUSE)

    async def run(self) -> None:
        """Ask partners from time to time. UsageError when this node's model is not the run's."""
        pause = CHECK_EVERY
        while self._policy.can.entries is not None:
            await asyncio.sleep(pause)
            await self._services.limiter.free()
            settled = bool(self._partners()) and await self._ask_some()
            pause = min(2 * pause, MOST_SELDOM) if settled else CHECK_EVERY

    async def _ask_some(self) -> bool:
        """Ask up to three partners for their results at this node's position; returns whether that is settled."""
        partners = self._partners()
        if self._policy.can.entries is None:
            return True
        place, mine = await self._services.seams.compute(lambda: self._look(b""))
        if mine is None:
            return False
        if not any(mine):
            return True  # nothing of this model can be compared
        differing: dict[PeerId, FunctionSketch] = {}
        for partner in partners:
            theirs = await self._ask(partner, place)
            if theirs is None or not any(theirs):
                continue
            if not difference(theirs, mine):
                return True
            differing[partner] = theirs
            self._report(partner, difference(theirs, mine))
            if partner == self._founder:
                break
        if judge(differing, self._founder, self._confirmed) == "different":
            how = difference(next(iter(differing.values())), mine)
            who = " and ".join(short(partner) for partner in differing)
            raise UsageError(f"this node's model is not the run's: compared with {who} at equal weights, its {how}")
        return False

    def _partners(self) -> list[PeerId]:
        """The founder if it is there, then others in an order of this node's own."""
        me = self._services.identity.peer_id
        order = sorted(self._members.in_circle(), key=lambda peer: sha256(f"{me} {peer}".encode()))
        return sorted(order, key=lambda peer: peer != self._founder)[:ASKED_AT_ONCE]

    async def _ask(self, partner: PeerId, place: bytes) -> FunctionSketch | None:
        try:
            found = await self._calls.ask(partner, GetProbe(place, self._members.circle.name), ProbeIs, ASK_TIMEOUT)
        except (PeerError, NetworkDown):
            return None
        return FunctionSketch(found.outputs, found.losses)

    def _report(self, partner: PeerId, how: str) -> None:
        if partner not in self._reported:
            put_bounded(self._reported, partner, None, MAX_PARTNERS)
            text = f"{short(partner)} and this node do not train the same model: at equal weights this node's {how}"
            self._services.events.say("model", text, warning=True)

    # ---- answering ----

    async def answer(self, peer: PeerId, request: GetProbe) -> ProbeIs:
        """This node's results at a position; PeerRefused when it is busy or does not know that position."""
        self._members.circle.check(request.circle)
        if self._answering >= ANSWERED_AT_ONCE:
            raise PeerRefused("busy", "others are being answered")
        self._answering += 1
        try:
            _, found = await self._services.seams.compute(lambda: self._look(request.place))
        except ValueError as fault:
            raise PeerMisbehaved(f"probe: {fault}") from None
        finally:
            self._answering -= 1
        if found is None:
            raise PeerRefused("position", "this node does not know that position")
        return ProbeIs(found.outputs, found.losses)

    def _look(self, place: bytes) -> tuple[bytes, FunctionSketch | None]:
        """Heavy. The model's results at a position of the log, or now; None when the position is not known."""
        entries = self._policy.can.entries
        if place in self._known:
            return place, self._known[place]
        found = None if entries is None else entries.weights_at(place)
        if found is None:
            return place, None
        place, weights = found
        if not self._same_probe:  # what models make of different inputs says nothing
            return place, FunctionSketch()
        if place not in self._known:
            put_bounded(self._known, place, function_sketch(self._model_host, weights), REMEMBERED)
        return place, self._known[place]
