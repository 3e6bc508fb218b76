"""What to expect of machines and links: how long spans should be, and whether whole models per node are faster. Pure.

A visit of a micro-batch at a server brings hidden states forward, and hidden states and a gradient back again: five
tensors in all. Compute and transfer overlap, so the slower of the two decides (the idea is Varuna's).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...wire.types import Seconds

TENSORS_A_VISIT = 5  # forward: there and back; backward: input and gradient there, gradient back
CALLS_A_VISIT = 2
RECOMPUTED = 4 / 3  # a backward pass computes the forward pass again
BYTES_PER_PARAMETER = 40  # at a server: weights, two sums of gradients, two moments, and the vectors of the delta set
CALL_SECONDS: Seconds = 0.002  # that a call costs besides what it computes
NEARLY = 0.95  # a small micro-batch that is nearly as fast as a large one is better: more of them are under way
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ModelFacts:
    """The model: its blocks, its size, and the tensor between two blocks."""

    blocks: int
    block_parameters: int
    end_parameters: int
    tensor_bytes: float  # of one sample, as it is sent


@dataclass(frozen=True)
class MachineFacts:
    """Equal machines and the links between them."""

    machines: int
    seconds_per_sample: Seconds  # of a whole model, forward and backward, on one machine
    memory_bytes: float  # that each may use
    rate: float  # bytes a second of each link
    latency: Seconds
    largest_call: int  # bytes of a tensor in one call


class Placement(NamedTuple):
    """What to expect. `span` is 0 where not even one block fits."""

    span: int  # blocks at each server
    servers_needed: int  # to hold the model once
    micro_batch: int
    in_flight: int  # micro-batches
    samples_per_second: float
    whole_samples_per_second: float | None  # with a whole model on each machine; None: it does not fit
    break_even_rate: float  # bytes a second from which compute, not the link, decides
    reason: str

    @property
    def whole_is_faster(self) -> bool:
        return self.whole_samples_per_second is not None and self.whole_samples_per_second >= self.samples_per_second


def place(model: ModelFacts, machines: MachineFacts, micro_batch: int = 0) -> Placement:
    """The best spans and micro-batch for these machines; with a `micro_batch` only that one is looked at."""
    room = machines.memory_bytes / BYTES_PER_PARAMETER
    span = min(model.blocks, int(room // model.block_parameters))
    whole_fits = room >= model.blocks * model.block_parameters + model.end_parameters
    whole = machines.machines / machines.seconds_per_sample if whole_fits else None
    if span < 1 or machines.machines * span < model.blocks:
        need = -(-model.blocks // span) if span else 0
        reason = (
            f"a span of {span} blocks fits each machine, so {need} machines are needed"
            if span
            else "not even one block fits into the memory of a machine"
        )
        return Placement(span, need, 0, 0, 0.0, whole, 0.0, reason)
    sizes = (micro_batch,) if micro_batch else MICRO_BATCHES
    plans = [expected(model, machines, span, size) for size in sizes]
    most = max(plan.samples_per_second for plan in plans)
    best = next(plan for plan in plans if plan.samples_per_second >= NEARLY * most)
    return best._replace(whole_samples_per_second=whole, reason=_reason(best, whole))


def expected(model: ModelFacts, machines: MachineFacts, span: int, size: int) -> Placement:
    """What spans of this length give with micro-batches of this size."""
    visits = model.blocks / span
    compute = size * machines.seconds_per_sample * RECOMPUTED / visits + CALLS_A_VISIT * CALL_SECONDS
    moved = size * TENSORS_A_VISIT * model.tensor_bytes
    transfer = moved / machines.rate
    slower = max(compute, transfer)
    fits = size * model.tensor_bytes <= machines.largest_call
    rate = machines.machines * size / (visits * slower) if fits else 0.0
    waits = CALLS_A_VISIT * 2 * machines.latency + min(compute, transfer)
    in_flight = max(1, round(machines.machines * (1 + waits / slower)))
    return Placement(span, -(-model.blocks // span), size, in_flight, rate, None, moved / compute, "")


def _reason(best: Placement, whole: float | None) -> str:
    if not best.samples_per_second:
        return "a single sample between two blocks is larger than a call may be"
    if whole is None:
        return "the whole model does not fit one machine"
    if whole >= best.samples_per_second:
        return "the whole model fits each machine, and then nothing has to travel at each step"
    return "spans are faster"
