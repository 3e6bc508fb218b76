"""The merge policies there are, by name; outside packages add theirs as entry points `p2pnode.merge`."""

from __future__ import annotations

from importlib import metadata

from .average import Average
from .deltaset import DeltaSetPolicy
from .diloco import DiLoCo
from .gossip import Gossip
from .policy import MakePolicy

GROUP = "p2pnode.merge"

POLICIES: dict[str, MakePolicy] = {
    "deltaset": DeltaSetPolicy,
    "average": Average,
    "gossip": Gossip,
    "diloco": DiLoCo,
}


def policy_named(name: str) -> MakePolicy:
    """The policy built in or installed under `name`; ValueError when there is none."""
    if name in POLICIES:
        return POLICIES[name]
    found = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise ValueError(f"no merge policy {name[:60]!r}; known are {', '.join(sorted(POLICIES))}")
    make: MakePolicy = found[0].load()
    return make
