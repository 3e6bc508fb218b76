"""How exchanges with each peer went lately: who never answers, or always refuses, is asked seldom, but not never."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..wire.bounded import keep_newest
from ..wire.ids import PeerId

MOST = 2000  # peers remembered
KEEP = 0.5  # of what earlier exchanges said
LEAST = 0.02  # what one is worth with whom nothing ever goes well


class PartnerRecord:
    """This node's own experience; nothing that a peer says changes it."""

    def __init__(self) -> None:
        self._worth: dict[PeerId, float] = {}

    def note(self, peer: PeerId, well: bool) -> None:
        """One exchange went well, or came to nothing."""
        keep_newest(self._worth, peer, KEEP * self.worth(peer) + (1 - KEEP) * well, MOST)

    def worth(self, peer: PeerId) -> float:
        """From 1 for one with whom all goes well, or that was not asked yet, down to LEAST."""
        return max(LEAST, self._worth.get(peer, 1.0))

    def draw(self, peers: Sequence[PeerId], count: int, rng: random.Random) -> list[PeerId]:
        """So many by lot, all different, those of more worth more often; all of them where they are no more."""
        if len(peers) <= count:
            return list(peers)
        lots = {peer: rng.random() ** (1 / self.worth(peer)) for peer in peers}
        return sorted(sorted(peers, key=lots.__getitem__, reverse=True)[:count])
