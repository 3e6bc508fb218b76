"""Snapshots: taking over where another member is, and giving a newcomer what it needs for that."""

from __future__ import annotations

from ..errors import NetworkDown, PeerError
from ..ids import PeerId
from ..merge.policy import Policy
from ..messages import GetSnapshot, encode
from ..network.base import MemorySink, Payload, StreamLimits
from .admission import Admission
from .parts import Parts

SNAPSHOT_OVERHEAD = 64 << 20


class Snapshots:
    """One model's snapshots, both ways."""

    def __init__(self, parts: Parts, admission: Admission, policy: Policy) -> None:
        self._parts = parts
        self._admission = admission
        self._policy = policy

    async def adopt_from(self, peers: list[PeerId]) -> bool:
        """Start where the first member that can say is; False when none can."""
        for peer in peers:
            try:
                content = await self._fetch(peer)
                await self._parts.world.compute(lambda content=content: self._policy.adopt(content))  # type: ignore[misc]
            except (PeerError, NetworkDown):
                continue
            except ValueError as error:
                self._parts.standing.fault(peer, f"snapshot: {error}", self._parts.world.clock.monotonic())
                continue
            return True
        return False

    async def _fetch(self, peer: PeerId) -> bytes:
        limits = StreamLimits(max_bytes=8 * len(self._policy.readout()) + SNAPSHOT_OVERHEAD)
        request = GetSnapshot(self._admission.access.tag, self._admission.model, self._admission.proof(peer))
        sink = MemorySink()
        await self._parts.network.fetch(peer, encode(request), sink, limits)
        return sink.content()

    async def payload(self, peer: PeerId, request: GetSnapshot) -> Payload:
        """The snapshot a newcomer asked for."""
        self._admission.check(peer, request.run, request.model, request.proof)
        return Payload.of(await self._parts.world.compute(self._policy.snapshot))
