"""The words that circles were founded by (deltaset/lineage.py): asked of their members, and told of our own."""

from __future__ import annotations

from ..discovery.services import Services
from ..merging.deltaset.lineage import CircleFounding, read_found
from ..runtime.calls import JobCalls
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.types import Seconds
from .current import CurrentCircle
from .messages import CircleIs, GetCircle

MOST_ASKED = 3  # members of a circle
ASK_TIMEOUT: Seconds = 5.0


class FoundingRecords:
    """One model's words of circles."""

    def __init__(self, services: Services, calls: JobCalls, own: CurrentCircle) -> None:
        self._services = services
        self._calls = calls
        self._own = own

    async def ask(self, name: str, members: list[PeerId]) -> CircleFounding | None:
        """The word a circle was founded by, from any of its members. A wrong one costs standing."""
        for peer in members[:MOST_ASKED]:
            request = GetCircle(name)
            try:
                return read_found((await self._calls.ask(peer, request, CircleIs, ASK_TIMEOUT)).found, name)
            except ValueError as fault:
                self._services.fault(peer, f"circle: {fault}")
            except (PeerError, NetworkDown):
                continue
        return None

    def answer(self, peer: PeerId, request: GetCircle) -> CircleIs:
        """The word our circle was founded by; PeerRefused to who may not ask, or means another."""
        self._own.check(request.circle)
        return CircleIs(self._own.found)
