"""Measures how many threads torch should train with. On a busy machine two can be 20 times slower than one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from .host import ModelHost
from .trainer import Trainer

WORTH = 1.1  # more threads must make training this much faster, since the network and the user need them too
SECONDS = 1.0  # for measuring


def choose_threads(
    model_host: ModelHost,
    cores: int | None = None,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Tries 1, 2, 4 … threads for about `seconds` in all, leaving one core free; sets and returns the best number.

    Call it in the thread that trains: torch keeps the number for each thread.
    """
    candidates = thread_counts(cores if cores is not None else _cores()) if model_host.device.type == "cpu" else [1]
    best, fastest = 1, 0.0
    for threads in candidates if len(candidates) > 1 else []:
        torch.set_num_threads(threads)
        speed = _speed(model_host, seconds / len(candidates), clock)
        if speed > fastest * (WORTH if fastest else 1.0):
            best, fastest = threads, speed
    torch.set_num_threads(best)
    return best


def thread_counts(cores: int) -> list[int]:
    """The powers of two that leave one core for the network."""
    return [1 << power for power in range(7) if 1 << power == 1 or 1 << power < cores]


def _speed(model_host: ModelHost, seconds: float, clock: Callable[[], float]) -> float:
    """The steps per second of a temporary trainer. The first step warms up and counts only if there is no time left."""
    trainer = Trainer(model_host, clock=clock)
    weights = model_host.take()
    warm = trainer.steps(weights, 1).seconds
    begun, steps = clock(), 0
    while clock() - begun < seconds - warm:
        trainer.steps(weights, 1)
        steps += 1
    return steps / max(clock() - begun, 1e-9) if steps else 1.0 / max(warm, 1e-9)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
