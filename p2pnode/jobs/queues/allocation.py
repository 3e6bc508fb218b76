"""Who should own which queue: every node computes the same table from what the members announce."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..leases.watch import turn_order

STAY = 1.25  # the present owner counts as this much faster, so that queues do not wander to and fro


@dataclass(frozen=True)
class NodeLoad:
    """What a member announces: how fast it applies, and the share of its time in which it has nothing to do."""

    speed: float  # relative to others; local steps a second will do
    idle: float  # 0 to 1


@dataclass(frozen=True)
class QueueLoad:
    """A queue as the allocation sees it."""

    work: float  # that it brings, in any unit
    owner: str  # now; "": nobody
    able: Collection[str]  # members that have its model
    preferred: str = ""  # the member that gets it whenever it is there


def allocate(queues: Mapping[str, QueueLoad], nodes: Mapping[str, NodeLoad]) -> dict[str, str]:
    """The owner that each queue should have: the heaviest queue first, each to whoever then has most to spare.

    A queue whose model nobody of the `nodes` has is left out.
    """
    given: dict[str, str] = {}
    taken = dict.fromkeys(nodes, 0.0)
    total = sum(queue.work for queue in queues.values()) or 1.0
    for name in sorted(queues, key=lambda name: (-queues[name].work, name)):
        queue = queues[name]
        able = [node for node in turn_order(name, nodes) if node in queue.able]
        if not able:
            continue
        chosen = max(able, key=lambda node: _spare(nodes[node], taken[node], queue.owner == node))
        given[name] = queue.preferred if queue.preferred in able else chosen
        taken[given[name]] += queue.work / total
    return given


def _spare(node: NodeLoad, taken: float, owner: bool) -> float:
    """How much a node has left for one more queue."""
    capacity = max(0.05, node.idle) * max(1e-9, node.speed)
    return capacity * (STAY if owner else 1.0) / (1.0 + 4.0 * taken)
