"""Bridges: now and then a node compares its circle's weights with another's and publishes half the difference."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..discovery.services import Services
from ..discovery.table import Peer
from ..merging.deltaset.bridges import BridgeDraft
from ..merging.messages import Exchanged
from ..merging.policy import Policy
from ..runtime.calls import JobCalls
from ..training.progress import TrainProgress
from ..wire.bounded import put_bounded
from ..wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.types import Seconds
from .founding import circle_lineage, is_split_off
from .members import Members
from .messages import Bridge
from .trust import LEAST_MEMBERS

BRIDGE_TIMEOUT: Seconds = 10.0
MOST_ASKED = 256  # peers remembered as asked


class BridgeAnswer(NamedTuple):
    """A partner's answer that has not been used yet."""

    partner: PeerId
    other: bytes  # the partner's lineage
    answer: bytes
    group: int


class Bridging:
    """Asks members of other circles for their weights, and answers them. Only delta sets have circles to bridge."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        policy: Policy,
        genesis: bytes,
        train_progress: TrainProgress,
        members: Members,
    ) -> None:
        """`genesis` is the run's lineage, from which those of its circles follow."""
        self._services = services
        self._calls = calls
        self._bridges = None if policy.can.circles is None else policy.can.circles.bridges
        self._genesis = genesis
        self._train_progress = train_progress
        self._members = members
        self._answer: BridgeAnswer | None = None
        self._asked: dict[PeerId, int] = {}  # until which round each is not asked again
        self._answering = False

    # ---- asking ----

    @property
    def rate_factor(self) -> float:
        """How many times the usual rate of bridges the run wants."""
        return 0.0 if self._bridges is None else self._bridges.rate

    def peers_of_other_circles(self) -> list[PeerId]:
        """Peers of other circles; nobody if the policy has no bridges or the run wants none.

        Peers alone in a circle that split off, or asked recently, are left out: a liar names another circle each time.
        """
        if not self.rate_factor:
            return []
        where = self._members.circles()
        mine, sizes = self._members.circle.name, Counter(where.values())
        small = {name for name in sizes if is_split_off(name) and sizes[name] < LEAST_MEMBERS}
        rested = {peer for peer in where if self._train_progress.rounds >= self._asked.get(peer, 0)}
        return [peer for peer, name in where.items() if name not in (mine, *small) and peer in rested]

    async def ask(self, partner: Peer, group: int) -> None:
        """Ask a peer of another circle for its weights, unless a member of our circle of `group` did so recently."""
        assert self._bridges is not None
        other = circle_lineage(self._genesis, self._members.announced(partner).circle)
        question = self._bridges.ask(other, group)
        if not question:
            return
        put_bounded(self._asked, partner.id, self._train_progress.rounds + group, MOST_ASKED)
        try:
            answer = (await self._calls.ask(partner.id, Bridge(question), Exchanged, BRIDGE_TIMEOUT)).body
        except (PeerError, NetworkDown):
            return
        if answer:  # empty: the partner has moved to another circle since its announcement
            self._answer = BridgeAnswer(partner.id, other, answer, group)
            now = self._services.seams.clock.time()
            self._train_progress.note_exchange(partner.id, len(question), len(answer), now)

    def move(self) -> None:
        """This node is in another circle now: the answer was for the old one."""
        self._answer = None

    async def draft(self) -> BridgeDraft | None:
        """The entry to publish after an answer; None when there is none. Nonsense costs the partner reputation.

        The round asks for it and publishes it, since publishing and saving must not overlap.
        """
        received, bridges, self._answer = self._answer, self._bridges, None
        if received is None or bridges is None:
            return None
        try:
            return await self._services.seams.compute(
                lambda: bridges.draft(received.other, received.answer, received.group)
            )
        except ValueError as fault:
            self._services.fault(received.partner, f"bridge: {fault}")
            return None

    # ---- answering ----

    async def answer(self, peer: PeerId, request: Bridge) -> Exchanged:
        """The answer to a node of another circle; PeerRefused when it must wait, PeerMisbehaved for nonsense."""
        bridges = self._bridges
        if bridges is None:
            raise PeerRefused("no bridges", "this run's policy has none")
        if self._answering:
            raise PeerRefused("busy", "one bridge at a time")
        self._answering = True
        try:
            return Exchanged(await self._services.seams.background(lambda: bridges.answer(request.body)))
        except ValueError as fault:
            raise PeerMisbehaved(f"bridge: {fault}") from None
        finally:
            self._answering = False
