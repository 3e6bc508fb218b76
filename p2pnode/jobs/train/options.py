"""How a run's plan and this node's user want the learning to go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ...config.until import Until
from ...discovery.services import Services
from ...merging.deltaset.entry import NO_HASH
from ...similarity.partners import PartnerSettings
from ...wire.run import Aim, RunAccess
from ...wire.types import Seconds


@dataclass(frozen=True)
class Terms:
    """How a run's plan and this node's user want the learning to go."""

    round_seconds: Seconds
    max_steps: int
    rows: NDArray[np.int64] | None = None  # of the data; None: this node's shards among those present
    circle: str = ""
    genesis: bytes = NO_HASH  # the run's lineage
    until: Until | None = None
    max_disk: int | None = None
    created: float = 0.0  # swarm time the run was founded
    aim: Aim = "shared"
    partners: PartnerSettings = PartnerSettings()  # noqa: RUF009  (frozen)
    share_data: bool = False  # this node's samples may travel
    stays_home: bool = False  # or are neither offered nor described
    reserve: bool = False  # what models are sure of is drawn less often
    visits: bool = True  # models of others may come to them


def own_seed(services: Services, access: RunAccess) -> int:
    """The same for this node in this run at every start, so that a restart goes on with the same batches."""
    return int.from_bytes(blake3(f"{access.run}/{services.identity.peer_id}".encode()).digest(4)) >> 1
