"""Which model of which run a node talks about, and who may ask about it."""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.errors import PeerRefused
from ..wire.ids import PeerId
from ..wire.run import RunAccess


@dataclass(frozen=True)
class Admission:
    """One model of one run at this node."""

    access: RunAccess
    me: PeerId
    model: str

    def proof(self, peer: PeerId) -> bytes:
        """What shows `peer` that we belong to the run."""
        return self.access.proof(self.me, peer)

    def check(self, peer: PeerId, run: str, model: str, proof: bytes) -> None:
        """PeerRefused when a peer asks about something else, or may not ask."""
        if run != self.access.tag or model != self.model:
            raise PeerRefused("unknown run", "this node does not learn that")
        check_proof(self.access, proof, peer, self.me)


def check_proof(access: RunAccess, proof: bytes, peer: PeerId, me: PeerId) -> None:
    """PeerRefused unless a peer shows that it belongs to the run."""
    if not access.admits(proof, peer, me):
        raise PeerRefused("private", "the run is private and the proof of its key is missing or wrong")
