"""The words that circles were founded by (deltaset/lineage.py): asked of their members, and told of our own."""

from __future__ import annotations

from ..discovery.admission import Admission
from ..discovery.services import Services
from ..merging.deltaset.lineage import CircleFounding, read_found
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.messages import CircleIs, GetCircle
from ..wire.types import Seconds
from .members import CurrentCircle

MOST_ASKED = 3  # members of a circle
ASK_TIMEOUT: Seconds = 5.0


class FoundingRecords:
    """One model's words of circles."""

    def __init__(self, services: Services, admission: Admission, own: CurrentCircle) -> None:
        self._services = services
        self._admission = admission
        self._own = own

    async def ask(self, name: str, members: list[PeerId]) -> CircleFounding | None:
        """The word a circle was founded by, from any of its members. A wrong one costs standing."""
        admission = self._admission
        for peer in members[:MOST_ASKED]:
            request = GetCircle(admission.access.tag, admission.model, name, admission.proof(peer))
            try:
                return read_found((await self._services.calls.ask(peer, request, CircleIs, ASK_TIMEOUT)).found, name)
            except ValueError as fault:
                self._services.fault(peer, f"circle: {fault}")
            except (PeerError, NetworkDown):
                continue
        return None

    def answer(self, peer: PeerId, request: GetCircle) -> CircleIs:
        """The word our circle was founded by; PeerRefused to who may not ask, or means another."""
        self._admission.check(peer, request.run, request.model, request.proof)
        self._own.check(request.circle)
        return CircleIs(self._own.found)
