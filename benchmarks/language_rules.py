"""Published rules for sharing a language model in few bytes, in step, for comparison: all members wait for each other.

sparseloco    H steps, then the largest 2 % of each chunk of 4,096 coordinates at 2 bits with error feedback, mean,
              outer rate 1 (SparseLoCo, arXiv:2508.15706, without its outer momentum)
senders       the same, but each coordinate is divided by how many sent it (as the code of Covenant-72B does)
nesterov      the same with 2 % of all coordinates; each author puts Nesterov momentum on its own progress first
diloco        H steps, dense mean, Nesterov momentum 0.9 at rate 0.7 on it (DiLoCo; with Muon inside it is MuLoCo)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.virtualpeers import Plan
from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import Indices, SparseDelta
from p2pnode.compression.quantise import quantise
from p2pnode.compression.selectors.magnitude import largest
from p2pnode.compression.weights import Floats, Units, from_units, to_units
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer

RULES = ("sparseloco", "senders", "nesterov", "diloco")
CHUNK = 4096
SHARE = 0.02
FEEDBACK = 0.95  # of the residual that is kept
MOMENTUM, AUTHOR_RATE, OUTER_RATE = 0.9, 0.4, 0.7
BITS = 2


def run_rule(
    rule: str, model_host: ModelHost, parts: Sequence[np.ndarray], plan: Plan, genesis: Floats, every: int
) -> tuple[list[Trainer], Floats, float]:
    """Run one rule with `every` steps between exchanges; returns the trainers, the weights and bytes per node."""
    trainers = [Trainer(model_host, part, plan.seed * 1000 + number) for number, part in enumerate(parts)]
    weights, momentum = genesis.copy(), np.zeros_like(genesis)
    residuals = [np.zeros_like(genesis) for _ in trainers]
    momenta = [np.zeros_like(genesis) for _ in trainers]
    received = 0.0
    for done in range(0, plan.steps, every):
        rate, count = plan.rate * plan.decay(done), min(every, plan.steps - done)
        made = [trainer.steps(weights, count, rate=rate).weights - weights for trainer in trainers]
        if rule == "diloco":
            mean = np.mean(made, axis=0, dtype=np.float64).astype(np.float32)
            momentum = MOMENTUM * momentum + mean
            weights = weights + np.float32(OUTER_RATE) * (mean + np.float32(MOMENTUM) * momentum)
            received += 2 * (len(parts) - 1) / len(parts) * weights.nbytes
            continue
        if rule == "nesterov":
            momenta = [MOMENTUM * old + new for old, new in zip(momenta, made, strict=True)]
            steps = zip(made, momenta, strict=True)
            made = [np.float32(AUTHOR_RATE) * (new + np.float32(MOMENTUM) * old) for new, old in steps]
        sent = np.zeros(len(genesis), np.float64)
        senders = np.zeros(len(genesis), np.int64)
        for number, progress in enumerate(made):
            delta, residuals[number] = _compressed(FEEDBACK * residuals[number] + progress, rule)
            sent[delta.indices] += from_units(delta.values)
            senders[delta.indices] += 1
            received += len(encode_delta(delta)) * (len(parts) - 1) / len(parts)
        divisor = np.maximum(1, senders) if rule == "senders" else len(parts)
        weights = (weights + sent / divisor).astype(np.float32)
    return trainers, weights, received


def _compressed(progress: Floats, rule: str) -> tuple[SparseDelta, Floats]:
    units = to_units(progress.astype(np.float32))
    places = largest(units, round(SHARE * len(units))) if rule == "nesterov" else _largest_of_chunks(units)
    delta = SparseDelta(len(units), places, quantise(units[places], BITS))
    left = progress.copy()
    left[places] -= from_units(delta.values)
    return delta, left


def _largest_of_chunks(units: Units) -> Indices:
    """The largest share of each chunk."""
    found = []
    for start in range(0, len(units), CHUNK):
        chunk = units[start : start + CHUNK]
        found.append(largest(chunk, max(1, round(SHARE * len(chunk)))) + np.uint32(start))
    return np.concatenate(found).astype(np.uint32)
