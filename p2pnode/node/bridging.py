"""Bridges: now and then a node compares its circle's weights with another's, and tells its own (merge/setbridge.py).

Beside exchanges, which do not wait for it: what is heavy about a bridge waits for its turn among rounds of training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..deltaset.lineage import circle_lineage
from ..errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..ids import PeerId
from ..merge.deltaset import DeltaSetPolicy
from ..merge.policy import Policy
from ..messages import Bridge, Exchanged
from ..network.base import Seconds
from ..peers.table import Peer
from .admission import Admission
from .parts import Parts
from .standings import Standings

BRIDGE_TIMEOUT: Seconds = 10.0


class Bridging:
    """One model's talk with circles it does not belong to. Only delta sets have circles to bridge."""

    def __init__(
        self,
        parts: Parts,
        admission: Admission,
        policy: Policy,
        standings: Standings,
        genesis: bytes,
        publish: Callable[[object], None],
    ) -> None:
        """`genesis` is the run's lineage, from which those of its circles follow; `publish` journals, then tells."""
        self._parts = parts
        self._admission = admission
        self._policy = policy if isinstance(policy, DeltaSetPolicy) else None
        self._standings = standings
        self._genesis = genesis
        self._publish = publish
        self._chosen: asyncio.Queue[tuple[Peer, int]] = asyncio.Queue(maxsize=1)

    def choose(self, circle: str, group: int) -> bool:
        """Whether a peer of another circle than ours, which has `group` members, is asked this time."""
        rng, policy = self._parts.world.rng, self._policy
        if policy is None or self._chosen.full():
            return False
        present = self._parts.table.present(self._admission.access.tag)
        beyond = [peer for peer in present if peer.announcement.role == "node" and peer.announcement.circle != circle]
        if not beyond or rng.random() >= policy.author.tuning.bridge:
            return False
        self._chosen.put_nowait((rng.choice(beyond), group))
        return True

    async def keep(self) -> None:
        """Bridge to those that are chosen, one after the other, until cancelled."""
        while True:
            partner, group = await self._chosen.get()
            try:
                await self._bridge(partner, group)
            except ValueError as fault:
                self._parts.standing.fault(partner.id, f"bridge: {fault}", self._parts.world.clock.monotonic())
            except (PeerError, NetworkDown):
                continue

    async def _bridge(self, partner: Peer, group: int) -> None:
        policy, compute = self._policy, self._parts.world.compute
        assert policy is not None
        other = circle_lineage(self._genesis, partner.announcement.circle)
        seed = self._parts.world.rng.getrandbits(32)
        asked = await compute(lambda: policy.ask_beyond(other, group, seed))
        if asked is None:
            return
        proof = self._admission.proof(partner.id)
        request = Bridge(self._admission.access.tag, self._admission.model, asked.body, proof)
        told = (await self._parts.calls.ask(partner.id, request, Exchanged, BRIDGE_TIMEOUT)).body
        draft = await compute(lambda: policy.bridge(asked, told))
        if draft is not None:
            self._publish(draft)
            self._standings.bridges += 1

    def answer(self, peer: PeerId, request: Bridge) -> Exchanged:
        """What a node of another circle gets; PeerRefused or PeerMisbehaved when it may not ask, or talks nonsense."""
        self._admission.check(peer, request.run, request.model, request.proof)
        if self._policy is None:
            raise PeerRefused("no bridges", "this run's policy has none")
        try:
            return Exchanged(self._policy.answer_beyond(request.body))
        except ValueError as fault:
            raise PeerMisbehaved(f"bridge: {fault}") from None
