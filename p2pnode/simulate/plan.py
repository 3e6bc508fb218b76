"""What is simulated, as a value: equal plans give equal traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ids import Identity, sha256
from ..network.base import Seconds
from ..network.sim import Fault, Links
from ..node.node import NodeSettings

EPOCH = 1_800_000_000.0  # what a right clock shows at virtual time 0


@dataclass(frozen=True)
class Plan:
    """What is simulated. Node 0 founds the run; the others get its address, and start within `spread` seconds."""

    peers: int = 16
    seed: int = 0
    seconds: Seconds = 120.0
    links: Links = field(default_factory=Links)
    faults: tuple[Fault, ...] = ()
    skew: Mapping[int, Seconds] = field(default_factory=dict)  # by how much each node's clock is wrong
    spread: Seconds = 10.0
    sample_every: Seconds = 10.0  # 0: never
    keep_trace: int = 0
    settings: Callable[[NodeSettings, int, int], NodeSettings] = lambda usual, index, starts: usual


def identity_of(seed: int, index: int) -> Identity:
    """The identity of a node of a simulated swarm."""
    return Identity(sha256(f"p2pnode simulation {seed} node {index}".encode()))
