"""What a node of a simulation would have reached alone: the same samples, the same number of steps, no partners."""

from __future__ import annotations

from ..jobs.train.prepare import fixed_rows
from ..node.entrance import DataPart
from ..training.host import ModelHost
from ..training.trainer import Trainer


def accuracy_alone(model_host: ModelHost, share: DataPart, steps: int, seed: int) -> float | None:
    """Accuracy on the task's test data after training on one share only."""
    trainer = Trainer(model_host, fixed_rows(model_host, share), seed)
    weights = trainer.steps(model_host.genesis, steps).weights
    return trainer.evaluate(weights).accuracy
