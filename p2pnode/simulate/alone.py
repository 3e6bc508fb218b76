"""What a node of a simulation would have reached alone: the same samples, the same number of steps, no partners."""

from __future__ import annotations

from ..jobs.train.prepare import fixed_rows
from ..node.entrance import Share
from ..training.host import Bench
from ..training.trainer import Trainer


def accuracy_alone(bench: Bench, share: Share, steps: int, seed: int) -> float | None:
    """Accuracy on the task's test data after training on one share only."""
    trainer = Trainer(bench, fixed_rows(bench, share), seed)
    weights = trainer.steps(bench.genesis, steps).weights
    return trainer.evaluate(weights).accuracy
