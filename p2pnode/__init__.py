"""p2pnode: people train models together without a server."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`p2pnode.simulate(...)` and `p2pnode.Swarm`, imported when they are first asked for: it takes a while."""
    if name == "simulate":
        return import_module("p2pnode.simulate")
    if name == "Swarm":
        return import_module("p2pnode.watch.swarm").Swarm
    raise AttributeError(f"p2pnode has no {name!r}")
