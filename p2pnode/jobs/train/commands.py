"""Control commands for a training job: export, generate, log, blame, revert, ban, shards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...discovery.services import Services
from ...merging.capabilities import TracesAuthors
from ...tasks.task import Evaluation
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.ids import short
from ..model.authors import execute_about_authors
from .export import export, write_model

if TYPE_CHECKING:
    from .job import TrainJob


async def execute(request: ControlRequest, job: TrainJob, services: Services) -> ControlAnswer:
    """Carry out a command and return what was done; LocalProblem or UsageError when it cannot be done."""
    if request.do == "log":
        return ControlAnswer(merges=tuple(job.train_progress.merges))
    if request.do == "generate":
        return await job.generations.answer(request)
    if request.do == "export" and request.settle:
        return await _export_settled(request, job, services)
    if request.do == "export":
        source = job.export_source()
        work = partial(export, Path(request.file), job.trainer, job.policy, request.shared, source)
        return ControlAnswer(said=await services.seams.compute(work))
    if request.do == "shards":
        now, shards = services.seams.clock.monotonic(), job.shards
        return ControlAnswer(shards=(shards.one(request.shard, now),) if request.shard else shards.all(now))
    return await execute_about_authors(request, job, job.model_host.layout, partial(revert, job), services)


async def _export_settled(request: ControlRequest, job: TrainJob, services: Services) -> ControlAnswer:
    """Write the weights at the end of a settling phase; until then the answer tells how far it is."""
    pending = job.settled.ask()
    if pending:
        return ControlAnswer(pending=pending)
    weights, source = job.settled.take(), job.export_source()
    work = partial(write_model, Path(request.file), job.trainer, weights, "settled", source)
    return ControlAnswer(said=await services.seams.compute(work))


def revert(job: TrainJob, authors: TracesAuthors, peer: str) -> str:
    """Heavy. Leave a peer's work out; returns a summary with the test loss before and after."""
    again, policy = peer in authors.left_out, job.policy
    before = job.trainer.evaluate(policy.weights())
    kept = authors.leave_out(peer)
    after = job.trainer.evaluate(policy.weights())
    job.train_progress.evaluation = after
    what = "was left out already" if again else f"is left out: {kept} entries, and all that come"
    return (
        f"{short(peer)} {what}; test loss {before.loss:.4f} before, {after.loss:.4f} after{_accuracies(before, after)}"
    )


def _accuracies(before: Evaluation, after: Evaluation) -> str:
    if before.accuracy is None or after.accuracy is None:
        return ""
    return f"; accuracy {before.accuracy:.1%} before, {after.accuracy:.1%} after"
