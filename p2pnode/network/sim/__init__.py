"""A network in memory on virtual time: SimSwarm is the world, SimNetwork a node's part of it, Fault what goes wrong."""

from .faults import Fault, churn_faults, draw_faults, shrink
from .network import SimNetwork
from .swarm import Links, Runner, SimSwarm
from .trace import Trace, TraceEvent

__all__ = [
    "Fault",
    "Links",
    "Runner",
    "SimNetwork",
    "SimSwarm",
    "Trace",
    "TraceEvent",
    "churn_faults",
    "draw_faults",
    "shrink",
]
