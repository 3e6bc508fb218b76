"""The selectors by name, and which one a run uses. Other packages add theirs as entry points `p2pnode.selectors`.

A selector's name is a setting of the policy `deltaset`, so a run chooses it by `--set NAME=NUMBER`. Without such a
setting the largest magnitudes are sent: no other rule was better at the same number of bytes (docs/log.md).
"""

from __future__ import annotations

from importlib import metadata

from ...wire.errors import suggestion
from ..selector import MakeSelector, Selector, SelectorSetup
from .magnitude import Magnitude
from .scored import Scored

GROUP = "p2pnode.selectors"

SELECTORS: dict[str, MakeSelector] = {
    "magnitude": Magnitude,
    "influence": Scored,
    "importance": Scored,
    "layer_scores": Scored,
    "least_influence": Scored,
    "granularity": Scored,
}


def selector_named(name: str) -> MakeSelector | None:
    """The selector that is built in or installed under `name`; None when there is none.

    ValueError when it cannot be loaded.
    """
    if name in SELECTORS:
        return SELECTORS[name]
    found = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == name]
    if not found:
        return None
    try:
        make: MakeSelector = found[0].load()
    except Exception as error:  # another package's code may raise anything
        raise ValueError(f"the selector {name!r} ({found[0].value}) cannot be loaded: {error}") from error
    return make


def make_selector(setup: SelectorSetup) -> Selector:
    """The selector that has a setting other than 0, or `Magnitude`.

    ValueError when a setting names no selector, when two selectors are named, or when a number is out of range.
    """
    named: dict[MakeSelector, str] = {}
    for name, value in setup.settings.items():
        make = selector_named(name)
        if make is None:
            raise ValueError(f"no selector {name[:60]!r}; {suggestion(name, SELECTORS)}")
        if value:
            named[make] = name
    if len(named) > 1:
        raise ValueError(f"the settings {' and '.join(named.values())} choose two selectors; a run has one")
    return next(iter(named), Magnitude)(setup)
