"""A delta set as plain arrays, for snapshots and for the disk, and back; and the numbers a run may set for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...compression.quantise import BITS
from ...compression.selectors.granularity import NAMES as GRANULARITIES
from ...compression.selectors.scored import Scoring
from ...wire.types import HASH_BYTES
from ..policy import Arrays
from ..values import setting
from .entry import Chain, Entry, SetRules, decode_entry, encode_entry
from .exchange import bytes_array
from .heads import decode_heads, encode_heads
from .set import DeltaSet


@dataclass(frozen=True)
class DeltaSetOptions:
    """What a run's plan may set."""

    density: float = 0.0  # share of the coordinates an entry carries; 0: found by itself (steering.py)
    bits: int = 2
    gamma: float = 0.0  # of the outer step γ/G; 0: found by itself (steering.py)
    beta: float = 0.0  # what is left of the residual after a round; 0: found by itself (steering.py)
    rate: float = 0.0  # factor on the task's learning rate; 0: by the size of the circle (pace.py)
    interval: float = 0.0  # mean local steps of a round, at most; 0: by the steps done so far (pace.py)
    norm_ratio: float = 0.5  # an entry's largest norm, relative to the genesis
    bridge: float = 1.0  # times the annealed rate of bridges (communities/annealing.py); 0: none
    tau: float = 0.0  # medians within which steps done while entries came in are kept; 0: entries wait for the round
    influence: float = 0.0  # power of a coordinate's influence on the loss in its score; 0: left out
    importance: float = 0.0  # power of its learned importance; 0: left out
    layer_scores: float = 0.0  # power of the scores that partners tell of each layer; 0: none are told
    least_influence: float = 0.0  # of the mean; coordinates with less are not sent
    granularity: int = 0  # fine, hybrid, coarse, by rule, learned (deltas/granularity.py)

    @property
    def scoring(self) -> Scoring:
        return Scoring(self.influence, self.importance, self.layer_scores, self.least_influence, self.granularity)


def tuning_of(settings: Mapping[str, float]) -> DeltaSetOptions:
    """ValueError for an unknown name or a number out of range."""
    known = [field.name for field in fields(DeltaSetOptions)]
    for name in settings:
        if name not in known:
            raise ValueError(f"the policy deltaset has no setting {name[:60]!r}; known are {', '.join(known)}")
    usual = DeltaSetOptions()
    bits = settings.get("bits", usual.bits)
    if bits not in BITS:
        raise ValueError(f"bits {bits}; one of {BITS} is possible")
    granularity = settings.get("granularity", usual.granularity)
    if granularity not in range(len(GRANULARITIES)):
        words = ", ".join(f"{number} {name}" for number, name in enumerate(GRANULARITIES))
        raise ValueError(f"granularity {granularity}; one of {words} is possible")
    return DeltaSetOptions(
        setting(settings, "density", usual.density, 0.0, 1.0),
        int(bits),
        setting(settings, "gamma", usual.gamma, 0.0, 4.0),
        setting(settings, "beta", usual.beta, 0.0, 1.0),
        setting(settings, "rate", usual.rate, 0.0, 100.0),
        setting(settings, "interval", usual.interval, 0.0, 1e6),
        setting(settings, "norm_ratio", usual.norm_ratio, 1e-6, 1e6),
        setting(settings, "bridge", usual.bridge, 0.0, 20.0),
        setting(settings, "tau", usual.tau, 0.0, 1e6),
        setting(settings, "influence", usual.influence, 0.0, 2.0),
        setting(settings, "importance", usual.importance, 0.0, 2.0),
        setting(settings, "layer_scores", usual.layer_scores, 0.0, 2.0),
        setting(settings, "least_influence", usual.least_influence, 0.0, 10.0),
        int(granularity),
    )


def set_arrays(deltas: DeltaSet) -> Arrays:
    """All of a set, its kept entries among it."""
    log = deltas.log
    tips = b"".join(log.tips[chain] for chain in sorted(log.tips))
    kept = msgspec.msgpack.encode([encode_entry(entry) for entry in log])
    return {
        "lineage": bytes_array(deltas.rules.lineage),
        "units": deltas.units.copy(),
        "heads": bytes_array(encode_heads(deltas.heads)),
        "tips": bytes_array(tips),
        "exclusions": bytes_array(encode_heads(log.exclusions)),
        "steps": np.array([deltas.steps], np.int64),
        "entries": bytes_array(kept),
        "checksum": np.array([deltas.checksum], np.uint64),
    }


def set_from(arrays: Mapping[str, npt.NDArray[Any]], rules: SetRules) -> DeltaSet:
    """The set in arrays of our own, in the lineage they say; ValueError when they are not such."""
    try:
        return _set_from(arrays, replace(rules, lineage=arrays["lineage"].tobytes()))
    except (KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
        raise ValueError(f"not a delta set: {error!r:.120}") from None


def _set_from(arrays: Mapping[str, npt.NDArray[Any]], rules: SetRules) -> DeltaSet:
    heads, tips, units = decode_heads(arrays["heads"].tobytes()), arrays["tips"].tobytes(), arrays["units"]
    if len(tips) != HASH_BYTES * len(heads) or units.shape != (rules.size,) or units.dtype != np.int32:
        raise ValueError("it does not fit this model")
    fresh = DeltaSet(rules, units)
    fresh.steps = int(arrays["steps"][0])
    fresh.checksum = int(arrays["checksum"][0])  # what the entries made; damage since shows when it is compared
    ordered = {chain: tips[HASH_BYTES * place : HASH_BYTES * (place + 1)] for place, chain in enumerate(sorted(heads))}
    fresh.log.start_at(heads, ordered, decode_heads(arrays["exclusions"].tobytes()))
    chains: dict[Chain, list[Entry]] = {}
    for data in msgspec.msgpack.decode(arrays["entries"].tobytes(), type=list[bytes]):
        entry = decode_entry(data)
        chains.setdefault(entry.chain, []).append(entry)
    for entries in chains.values():
        fresh.log.keep(entries)
    return fresh
