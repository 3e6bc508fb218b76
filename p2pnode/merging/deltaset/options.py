"""The numbers a run may set for its delta set (`--set NAME=NUMBER`), checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...compression.quantise import BITS
from ...compression.selectors.registry import SELECTORS, selector_named
from ...wire.errors import suggestion
from ..values import setting

RANGES = {
    "density": (0.0, 1.0),
    "gamma": (0.0, 4.0),
    "beta": (0.0, 1.0),
    "rate": (0.0, 100.0),
    "interval": (0.0, 1e6),
    "norm_ratio": (1e-6, 1e6),
    "bridge": (0.0, 20.0),
    "kappa": (0.0, 1.0),
    "signs": (0.0, 1.0),
    "bounds": (0.0, 1.0),
    "admission": (0.0, 1.0),
}


@dataclass(frozen=True)
class DeltaSetOptions:
    """What a run's plan may set. Where 0 means automatic, steering.py, retention.py or pace.py finds the value."""

    density: float = 0.0  # share of the coordinates that an entry carries; 0: automatic
    gamma: float = 0.0  # of the outer step γ/G; 0: automatic
    beta: float = 0.0  # share of the residual that is kept after a round; 0: automatic
    rate: float = 0.0  # factor on the task's learning rate; 0: automatic, by the size of the circle
    interval: float = 0.0  # maximum of the mean local steps of a round; 0: automatic, by the steps done so far
    norm_ratio: float = 0.5  # the largest norm of an entry, relative to the genesis
    bridge: float = 1.0  # factor on the annealed rate of bridges (similarity/annealing.py); 0: no bridges
    kappa: float = 0.0  # share of the own residual in the weights that are trained; 0: automatic (retention.py)
    signs: float = 0.0  # above 0: entries have the sign of every coordinate (compression/signs.py)
    bounds: float = 0.0  # above 0: entries are bounded by those of the others (bounds.py), else by norm_ratio alone
    admission: float = 0.0  # above 0: an author counts once another admitted it (admission.py), and bounds hold
    bits: int = 2  # of a value
    selector: Mapping[str, float] = field(default_factory=dict)  # settings that choose the selector; none: magnitude


def read_options(settings: Mapping[str, float]) -> DeltaSetOptions:
    """The options in a run's settings; ValueError for an unknown name or a number out of range."""
    chosen = {name: settings.get(name, 0.0) for name in (*SELECTORS, *settings) if name not in (*RANGES, "bits")}
    selector = {name: value for name, value in chosen.items() if name in settings}
    for name in selector:
        if selector_named(name) is None:
            hint = suggestion(name, [*RANGES, "bits", *SELECTORS])
            raise ValueError(f"the policy deltaset has no setting {name[:60]!r}; {hint}")
    usual = DeltaSetOptions()
    bits = settings.get("bits", usual.bits)
    if bits not in BITS:
        raise ValueError(f"bits {bits}; one of {BITS} is possible")
    numbers = {name: setting(settings, name, getattr(usual, name), *bounds) for name, bounds in RANGES.items()}
    return DeltaSetOptions(**numbers, bits=int(bits), selector=selector)
