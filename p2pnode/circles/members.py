"""Which circle this node is in, and who else is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..discovery.table import Peer, PeerTable
from ..merging.deltaset.exchange import bytes_array
from ..storage.checkpoints import Arrays
from ..wire.errors import PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import JobAnnouncement
from .advice import MAX_CIRCLE

_NAME, _FOUND, _SINCE = "circle/name", "circle/found", "circle/since"


@dataclass
class CurrentCircle:
    """The circle this node is in. The run's first circle has no name."""

    name: str = ""
    found: bytes = b""  # the record it was founded by, where it split off
    since: int = 0  # the round in which this node came

    def check(self, name: str) -> None:
        """Raise PeerRefused when a peer means another circle."""
        if name != self.name:
            raise PeerRefused("circle", "this node is in another circle")

    def arrays(self) -> Arrays:
        """What goes to disk with the weights of the circle."""
        since = np.array([self.since], np.int64)
        return {_NAME: bytes_array(self.name.encode()), _FOUND: bytes_array(self.found), _SINCE: since}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Be in the circle that `arrays` describes; KeyError when they do not."""
        self.name, self.found = arrays[_NAME].tobytes().decode(), arrays[_FOUND].tobytes()
        self.since = int(arrays[_SINCE][0])


class Members:
    """The peers that learn in a run, seen from this node's circle."""

    def __init__(self, table: PeerTable, run: str, job: str, circle: CurrentCircle, shares_all: bool) -> None:
        """`run` is the run's tag; `shares_all` says whether everybody in a circle gets everybody's work."""
        self.circle = circle
        self._table = table
        self._run = run
        self._job = job
        self._shares_all = shares_all

    def present(self) -> list[Peer]:
        """Everybody of the run who is there, learning or not."""
        return self._table.present(self._run)

    def announced(self, peer: Peer) -> JobAnnouncement:
        """What a peer announces of this job."""
        return peer.announcement.job(self._job)

    def in_run(self) -> list[PeerId]:
        """Peers of the run that learn, in whichever circle."""
        return [peer.id for peer in self._table.doing(self._run, self._job)]

    def in_circle(self) -> list[PeerId]:
        """Peers of this node's circle; of the whole run where there are no circles."""
        return [peer for peer, circle in self.circles().items() if circle == self.circle.name]

    def active(self) -> list[PeerId]:
        """Returns the circle's other members, at most as many as one circle may have."""
        return self.in_circle()[: MAX_CIRCLE - 1]

    def out_of_reach(self) -> list[PeerId]:
        """Peers of the run whose work does not reach this node by itself."""
        shared = self.in_circle() if self._shares_all else []
        return [peer for peer in self.in_run() if peer not in shared]

    def circles(self) -> dict[PeerId, str]:
        """The circle that each learning peer of the run says it is in."""
        return {peer.id: self.announced(peer).circle for peer in self._table.doing(self._run, self._job)}
