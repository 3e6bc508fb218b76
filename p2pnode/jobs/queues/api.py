"""`p2pnode.Queues`: several models at once, described in Python, for `p2pnode.simulate` and `p2pnode.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...config.options import QUEUES, JobOptions
from ...wire.errors import UsageError

ModelGiven = str | tuple[str, Mapping[str, Any]] | Mapping[str, Any]


@dataclass(frozen=True)
class Queues:
    """A job that trains several models, each with its own queue. What is None has its default (docs/queues.md).

    `models` gives each name a task: "digits", ("digits", {"hidden": 256}), or {"task": "digits", "hidden": 256}.
    """

    models: Mapping[str, ModelGiven]
    weights: Mapping[str, float] | None = None  # of the score's parts: convergence, complexity, length, idle
    steps: int | None = None
    batch: int | None = None
    capacity: int | None = None
    density: float | None = None
    lease: float | None = None
    reallocate: float | None = None
    prefer_owner: str | Sequence[str] = ()
    name: str = QUEUES

    def job(self) -> JobOptions:
        """The job as a founder gives it; UsageError where a model is not written as it should be."""
        settings = ("weights", "steps", "batch", "capacity", "density", "lease", "reallocate")
        given = {key: getattr(self, key) for key in settings if getattr(self, key) is not None}
        if self.prefer_owner:
            given["prefer_owner"] = self.prefer_owner
        models = {name: _model(name, model) for name, model in self.models.items()}
        return JobOptions(self.name, QUEUES, {"models": models, **given})


def _model(name: str, given: ModelGiven) -> dict[str, Any]:
    if isinstance(given, str):
        return {"task": given}
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return {"task": given[0], **given[1]}
    if isinstance(given, Mapping) and "task" in given:
        return dict(given)
    raise UsageError(f"models[{name!r}] is no model; write 'digits', ('digits', {{'hidden': 256}}) or a mapping")
