"""The state of each sample: active, reserve, retired or quarantined, and the rules that decide it.

    active ──► reserve ──► retired      several models are sure of it: sampled less and less; back when forgotten
       ▲ └──► quarantined               three models with work of other peers fail at it; back when one learns it

A quarantined sample is left out of training here, but kept: it is never deleted and never announced as bad, because a
third of the samples that look wrong are clean. All functions compute on arrays with one place for each sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .shard import SampleNumbers

ACTIVE, RESERVE, RETIRED, QUARANTINED = 0, 1, 2, 3
NAMES = ("active", "reserve", "retired", "quarantined")
MAX_MODELS = 32  # whose verdicts are remembered: the latest
RETIRED_LEVEL = 4
LEAST_CHANCE = 0.1
ROUNDS_APART = 4  # minimum between weights that count as different models
EVIDENCE_PEERS = 2  # other peers whose work must be new in merged weights, before their failures count
PARTS_OF_PASS = 4  # maximum of different models in one pass through the data
SMOOTHING = 0.3  # weight of a new value in a sample's confidence

Shares = NDArray[np.float32]  # confidences in 0..1
Bits = NDArray[np.uint32]


@dataclass(frozen=True)
class StateRules:
    """The thresholds between states."""

    high: float = 0.95  # from here on a model is sure of a sample
    low: float = 0.12  # up to here a model fails at a sample
    forgotten: float = 0.5  # below this a sample in reserve is active again
    learnt: float = 0.2  # the median confidence from which a model's failures count
    sure_models: int = 3  # different ones, for reserve
    failing_models: int = 3  # different ones, for quarantine


@dataclass(frozen=True)
class SampleStates:
    """The states of some samples. Bit i of `sure` and `failing` is the verdict of `models[i]`."""

    confidence: Shares  # over all models, smoothed; NaN for samples that were never seen
    sure: Bits
    failing: Bits
    level: NDArray[np.uint8]
    quarantined: NDArray[np.bool_]
    models: tuple[str, ...] = ()


def untouched(count: int) -> SampleStates:
    """The states of samples that no model has seen: all active."""
    return SampleStates(
        np.full(count, np.nan, np.float32),
        np.zeros(count, np.uint32),
        np.zeros(count, np.uint32),
        np.zeros(count, np.uint8),
        np.zeros(count, np.bool_),
    )


def scored(
    states: SampleStates, model: str, places: SampleNumbers, shares: Shares, usual: float, rules: StateRules
) -> SampleStates:
    """The states after `model` gave confidences to the samples at `places`; call it once for each round and model.

    Confidences from training may be used if each is the first of a round, because then the weights have not trained on
    the sample since the merge. Merged weights of another age (`age_of_round`) count as another model.
    `usual` is the median of the model's confidences in that round. Below `rules.learnt` its failures do not count:
    it has learnt too little, or fails at the other samples too. Pass 0 for a model that is no evidence against a
    sample, because it holds no work of other peers (`EVIDENCE_PEERS`).
    """
    states, bit = _with_model(states, model)
    confidence, sure, failing = states.confidence.copy(), states.sure.copy(), states.failing.copy()
    level, quarantined = states.level.copy(), states.quarantined.copy()
    confidence[places] = smoothed = _smoothed(confidence[places], shares)
    sure[places] = _with_bit(sure[places], bit, shares >= rules.high)
    failing[places] = _with_bit(failing[places], bit, (shares <= rules.low) & (usual >= rules.learnt))
    many = np.bitwise_count(sure[places]) >= rules.sure_models
    risen = np.minimum(level[places] + 1, RETIRED_LEVEL)
    up = many & (shares >= rules.high)
    level[places] = np.where(shares < rules.forgotten, 0, np.where(up, risen, level[places]))
    many_fail = np.bitwise_count(failing[places]) >= rules.failing_models
    hopeless = many_fail & (smoothed <= rules.low) & (sure[places] == 0)
    quarantined[places] = (quarantined[places] | hopeless) & (shares < rules.forgotten)
    return SampleStates(confidence, sure, failing, level, quarantined, states.models)


def part(states: SampleStates, places: SampleNumbers) -> SampleStates:
    """The states of some of the samples, such as a shard's."""
    return SampleStates(
        states.confidence[places],
        states.sure[places],
        states.failing[places],
        states.level[places],
        states.quarantined[places],
        states.models,
    )


def age_of_round(drawn: int, samples: int) -> float:
    """How much older merged weights become in a round that drew `drawn` of the samples.

    Weights that are 1 older count as another model: after four rounds, or after a quarter of a pass through the data
    where that takes longer. So the models that are remembered cover several passes of any node.
    """
    return min(1 / ROUNDS_APART, PARTS_OF_PASS * drawn / max(1, samples))


def state_codes(states: SampleStates) -> NDArray[np.uint8]:
    """ACTIVE, RESERVE, RETIRED or QUARANTINED for each sample."""
    by_level = np.where(states.level == 0, ACTIVE, np.where(states.level < RETIRED_LEVEL, RESERVE, RETIRED))
    return np.where(states.quarantined, QUARANTINED, by_level).astype(np.uint8)


def chances(states: SampleStates) -> Shares:
    """How likely each sample is drawn: 1 when active, halved for each level down to 0.1, 0 when quarantined."""
    share = np.maximum(0.5 ** states.level.astype(np.float32), LEAST_CHANCE)
    return np.where(states.quarantined, 0.0, share).astype(np.float32)


def drawn_states(chances: Shares) -> NDArray[np.uint8]:
    """The state in which each sample is drawn, by the chances it is drawn with."""
    used = np.where(chances >= 1, ACTIVE, np.where(chances > np.float32(LEAST_CHANCE), RESERVE, RETIRED))
    return np.where(chances == 0, QUARANTINED, used).astype(np.uint8)


def reason(states: SampleStates, place: int) -> str:
    """Why a sample is in its state, such as "reserve: 0.98 by 3 models"."""
    code = int(state_codes(states)[place])
    counted = states.failing if code == QUARANTINED else states.sure
    models = int(np.bitwise_count(counted[place]))
    if np.isnan(states.confidence[place]):
        return f"{NAMES[code]}: not seen yet"
    return f"{NAMES[code]}: {states.confidence[place]:.2f} by {models} model{'' if models == 1 else 's'}"


def _smoothed(before: Shares, shares: Shares) -> Shares:
    moved = before + np.float32(SMOOTHING) * (shares - before)
    return np.where(np.isnan(before), shares, moved).astype(np.float32)


def _with_bit(verdicts: Bits, bit: int, yes: NDArray[np.bool_]) -> Bits:
    mask = np.uint32(1 << bit)
    return np.where(yes, verdicts | mask, verdicts & ~mask)


def _with_model(states: SampleStates, model: str) -> tuple[SampleStates, int]:
    """The bit of a model's verdicts. When all bits are taken, the oldest model is forgotten."""
    if model in states.models:
        return states, states.models.index(model)
    if len(states.models) < MAX_MODELS:
        return replace(states, models=(*states.models, model)), len(states.models)
    keep = ~np.uint32(1)
    sure, failing = (states.sure & keep) >> np.uint32(1), (states.failing & keep) >> np.uint32(1)
    return replace(states, sure=sure, failing=failing, models=(*states.models[1:], model)), MAX_MODELS - 1
