"""Who should own which queue: every node computes the same table from what the members announce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..leases.watch import turn_order

STAY = 1.25  # the present owner counts as this much faster, so that queues do not wander to and fro


@dataclass(frozen=True)
class NodeLoad:
    """What a member announces: how fast it applies, and the share of its time in which it has nothing to do."""

    speed: float  # relative to others; local steps a second will do
    idle: float  # 0 to 1


def allocate(
    loads: Mapping[str, float], owners: Mapping[str, str], nodes: Mapping[str, NodeLoad], preferred: Mapping[str, str]
) -> dict[str, str]:
    """The owner that each queue should have: the heaviest queue first, each to whoever then has most to spare.

    `loads` is the work each queue brings, in any unit; `owners` who owns it now. A `preferred` member that is present
    gets its queue in any case.
    """
    given: dict[str, str] = {}
    taken = dict.fromkeys(nodes, 0.0)
    total = sum(loads.values()) or 1.0
    for queue in sorted(loads, key=lambda queue: (-loads[queue], queue)):
        if preferred.get(queue) in nodes:
            given[queue] = preferred[queue]
        else:
            order = turn_order(queue, nodes)
            given[queue] = max(order, key=lambda node: _spare(nodes[node], taken[node], owners.get(queue) == node))
        taken[given[queue]] += loads[queue] / total
    return given


def _spare(node: NodeLoad, taken: float, owner: bool) -> float:
    """How much a node has left for one more queue."""
    capacity = max(0.05, node.idle) * max(1e-9, node.speed)
    return capacity * (STAY if owner else 1.0) / (1.0 + 4.0 * taken)
