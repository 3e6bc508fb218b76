"""A network in memory on virtual time, for simulations and tests.

`swarm.SimSwarm` has the hosts, links and faults of the whole swarm; start reading there. `network.SimNetwork` is the
network of one node, `traffic` its calls and streams. `faults` says what can go wrong, `ring` which hosts find each
other, `trace` records what happened, and `virtual_time` is the event loop that never waits.
"""

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
