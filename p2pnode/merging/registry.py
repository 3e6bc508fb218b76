"""The merge policies by name. Other packages add theirs as entry points of the group `p2pnode.merge`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import metadata
from typing import Any

import numpy as np

from ..wire.errors import suggestion
from ..wire.ids import Identity
from .average import Average
from .deltaset.policy import DeltaSetPolicy
from .diloco import DiLoCo
from .gossip import Gossip
from .policy import MakePolicy, PolicySetup

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
        raise ValueError(f"no merge policy {name[:60]!r}; {suggestion(name, known_policies())}")
    try:
        make: MakePolicy = found[0].load()
    except Exception as error:  # another package's code may raise anything
        raise ValueError(f"the merge policy {name!r} ({found[0].value}) cannot be loaded: {error}") from error
    return make


def known_policies() -> tuple[str, ...]:
    """The names of all policies, the built-in ones first."""
    return tuple(dict.fromkeys([*POLICIES, *(entry.name for entry in metadata.entry_points(group=GROUP))]))


def check_settings(name: str, settings: Mapping[str, float], besides: Collection[str] = ()) -> None:
    """Raise ValueError when there is no such policy, or it does not have these settings.

    `besides` are names of settings that belong to others.
    """
    plain, given = _Asked({}), _Asked(settings)
    _try_out(name, plain)
    try:
        _try_out(name, given)
        asked = plain.names | given.names
    except ValueError:
        asked = plain.names
        if set(settings) <= asked:
            raise
    unknown = sorted(set(settings) - asked)
    if unknown and asked:  # a policy from outside may read its settings in ways that are not seen here
        raise ValueError(
            f"the policy {name} has no setting {unknown[0][:60]!r}; {suggestion(unknown[0], asked | {*besides})}"
        )


def _try_out(name: str, settings: _Asked) -> None:
    policy_named(name)(
        PolicySetup(np.zeros(8, np.int32), Identity(bytes(32)), "00" * 32, "main", "00" * 32, settings, 0)
    )


class _Asked(dict[str, float]):
    """Settings that remember which names a policy asks for, which are those it knows."""

    def __init__(self, settings: Mapping[str, float]) -> None:
        super().__init__(settings)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)
