"""Measures on this machine what placement needs to know of a task's model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...tasks.data import as_data
from ...tasks.task import Task
from ...wire.types import Seconds
from .local_blocks import ENDS, LocalBlocks, ModelOutline
from .placement import ModelFacts
from .spans import BlockSpan
from .tensors import encoded_size

TIMES = 3  # of which the fastest counts
SAMPLES = 4


def measure_model(task: Task, clock: Callable[[], Seconds], bits: int = 8) -> tuple[ModelFacts, Seconds]:
    """Heavy. The model, and the seconds of a sample through all of its blocks, forward and backward, on this machine.

    Hidden states are those of the task's data, or of its probe where it has no data. Only one block and the ends are
    trained; the whole model is built for a moment.
    """
    outline = ModelOutline(task, seed=0)
    held = LocalBlocks(outline)
    first = outline.first_weights([ENDS, 0])
    for number, weights in first.items():
        held.hold(number, weights)
    data = as_data(task.data() if getattr(task, "source", "") else task.probe())
    shape = held.enter(data.first(1)).shape
    each = encoded_size((1, *shape[1:]), bits)
    hidden = np.random.default_rng(0).standard_normal((SAMPLES, *shape[1:]), np.float32)
    seconds = []
    for _ in range(TIMES):
        begun = clock()
        held.backward(BlockSpan(0, 1), hidden, hidden)
        seconds.append((clock() - begun) / SAMPLES)
    size = max(part.size for part in outline.parts.levels)
    facts = ModelFacts(outline.blocks, size, outline.parts.ends.size, float(each))
    return facts, min(seconds) * outline.blocks
