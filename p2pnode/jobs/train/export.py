"""What `export` writes: the model's whole state dict as the node evaluates it, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ... import __version__
from ...compression.weights import Floats
from ...merging.policy import Policy
from ...storage.files import write_whole
from ...storage.state_file import check_target, pack_state
from ...tasks.task import Evaluation
from ...training.trainer import Trainer
from .plan import TrainPlan

FILE_MODE = 0o644
EVALUATED = 10_000  # test samples, at most


@dataclass(frozen=True)
class ExportSource:
    """Where exported weights come from, for the file's metadata."""

    run: str
    job: str
    plan: TrainPlan
    rounds: int
    circle: str
    time: float  # seconds since 1970


def export(file: Path, trainer: Trainer, policy: Policy, shared: bool, source: ExportSource) -> str:
    """Heavy. Write the state dict, whole or not at all; returns a summary. UsageError, LocalProblem when it cannot be.

    It has what the node evaluates and shows: the average over the last rounds; or, if `shared`, the weights that all
    members of the circle have bit by bit.
    """
    return write_model(file, trainer, chosen_weights(policy, shared), "shared" if shared else "average", source)


def write_model(file: Path, trainer: Trainer, weights: Floats, what: str, source: ExportSource) -> str:
    """Heavy. The same for any weights of the trainer's model; `what` they are goes to the metadata."""
    check_target(file)
    host = trainer.model_host
    with trainer.fitted(weights):
        state, evaluation = host.state_dict(), host.evaluate(host.test.spread(EVALUATED))
    data = pack_state(file.suffix, state, {**host.task.export_facts(), **facts(source, evaluation, what)})
    write_whole(file, data, mode=FILE_MODE, remedy="name another file")
    result = f"loss {evaluation.loss:.4f}" if evaluation.accuracy is None else f"accuracy {evaluation.accuracy:.1%}"
    return (
        f"wrote the whole model, {len(state)} tensors, to {file} ({len(data):,} bytes); "
        f"{result} on {evaluation.samples:,} test samples"
    )


def chosen_weights(policy: Policy, shared: bool) -> Floats:
    """The weights to export. A policy without shared entries has only the average."""
    return policy.weights() if shared and policy.can.entries is not None else policy.readout()


def facts(source: ExportSource, evaluation: Evaluation, weights: str) -> dict[str, str]:
    """The file's metadata, as text. The file's own hash is added when it is packed."""
    return {
        "p2pnode": __version__,
        "date": datetime.fromtimestamp(source.time, UTC).isoformat(timespec="seconds"),
        "run": source.run,
        "job": source.job,
        "task": source.plan.task,
        "task_version": source.plan.version,
        "task_options": msgspec.json.encode(source.plan.options).decode(),
        "round": str(source.rounds),
        "circle": source.circle,
        "weights": weights,
        "loss": f"{evaluation.loss:.6g}",
        "accuracy": "" if evaluation.accuracy is None else f"{evaluation.accuracy:.6g}",
        "test_samples": str(evaluation.samples),
    }
