"""p2pnode: people train models together without a server."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`p2pnode.simulate(...)`, imported when it is first asked for: it takes a while."""
    if name == "simulate":
        from importlib import import_module

        return import_module("p2pnode.simulate")
    raise AttributeError(f"p2pnode has no {name!r}")
