"""The blocks that a node trains together, as the one vector of a whole model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...compression.weights import Floats
from ...merging.capabilities import Capabilities
from ...merging.policy import Pace
from .shared import SharedBlock


class JoinedBlocks:
    """Starts rounds and lets in what arrives (LetsInEntries), each block by its own policy."""

    def __init__(self, blocks: Sequence[SharedBlock]) -> None:
        self.blocks = tuple(blocks)
        self.times_let_in = 0
        self.can = Capabilities(corrections=self)
        self._size = sum(block.part.size for block in blocks)

    def start(self) -> Floats:
        """The weights where the next local steps begin. A fresh array."""
        return self._joined([block.policy.start() for block in self.blocks])

    def readout(self) -> Floats:
        """The weights to evaluate and export. A fresh array."""
        return self._joined([block.policy.readout() for block in self.blocks])

    def weights(self) -> Floats:
        """The shared weights, without what only this node knows. A fresh array."""
        return self._joined([block.policy.weights() for block in self.blocks])

    def _joined(self, parts: Sequence[Floats]) -> Floats:
        vector = np.empty(self._size, np.float32)
        for block, values in zip(self.blocks, parts, strict=True):
            block.part.put(vector, values)
        return vector

    def correct(self, begun: Floats, now: Floats) -> bool:
        """Let in what arrived since the round began. Both vectors change in place, by the same vector."""
        changed = False
        for block in self.blocks:
            corrections, part = block.policy.can.corrections, block.part
            if corrections is None:
                continue
            before, after = part.take(begun), part.take(now)
            if corrections.correct(before, after):
                part.put(begun, before)
                part.put(now, after)
                changed = True
        self.times_let_in += changed
        return changed

    def pace(self) -> Pace:
        """How the next round should go: the largest block decides on the rate, the hastiest one on the length."""
        paces = [(block.part.size, block.policy.pace(len(block.members.active()) + 1)) for block in self.blocks]
        main = max(paces, key=lambda pair: pair[0])[1]
        return Pace(min(pace.steps for _, pace in paces), main.rate, main.at)
