"""Which circle this node is in, and how it is kept with what was learned there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..merging.deltaset.exchange import bytes_array
from ..storage.checkpoints import Arrays
from ..wire.errors import PeerRefused

_NAME, _FOUND, _SINCE = "circle/name", "circle/found", "circle/since"


@dataclass
class CurrentCircle:
    """The circle this node is in. The run's first has no name."""

    name: str = ""
    found: bytes = b""  # the word it was founded by, where it split off
    since: int = 0  # the round in which this node came

    def check(self, name: str) -> None:
        """PeerRefused when a peer means another circle."""
        if name != self.name:
            raise PeerRefused("circle", "this node is in another circle")

    def arrays(self) -> Arrays:
        """For the disk."""
        since = np.array([self.since], np.int64)
        return {_NAME: bytes_array(self.name.encode()), _FOUND: bytes_array(self.found), _SINCE: since}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Be where the arrays were saved; those from before there were circles say nothing."""
        if _NAME in arrays:
            self.name, self.found = arrays[_NAME].tobytes().decode(), arrays[_FOUND].tobytes()
            self.since = int(arrays[_SINCE][0])
