"""Control commands for a loop job: export, log, shards, blame, revert, ban."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ...discovery.services import Services
from ...merging.capabilities import TracesAuthors
from ...storage.files import write_whole
from ...storage.state_file import SUFFIXES, check_target, pack_state
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import UsageError
from ...wire.ids import short
from ..model.authors import execute_about_authors

if TYPE_CHECKING:
    from .job import LoopJob

FILE_MODE = 0o644


async def execute(request: ControlRequest, job: LoopJob, services: Services) -> ControlAnswer:
    """Carry out a command and return what was done; LocalProblem or UsageError when it cannot be done."""
    if request.do == "log":
        return ControlAnswer(merges=tuple(job.train_progress.merges))
    if request.do == "export" and request.settle:
        raise UsageError("the learning rate of a training loop is the loop's own: export without --settle")
    if request.do == "export":
        now = services.seams.clock.time()
        work = partial(export, Path(request.file), job, request.shared, now)
        return ControlAnswer(said=await services.seams.compute(work))
    if request.do == "shards":
        rows = [row for row in job.shard_rows() if row.id.startswith(request.shard.lower())]
        if request.shard and len(rows) != 1:
            kind = "several shards begin" if rows else "no shard here begins"
            raise UsageError(f"{kind} with {request.shard[:40]!r}; `p2pnode shards` lists them")
        return ControlAnswer(shards=tuple(rows))
    if request.do not in ("blame", "revert", "ban", "unban"):
        raise UsageError(f"a run of training loops has no {request.do!r}")
    return await execute_about_authors(request, job, job.source.layout, leave_out, services)


def leave_out(authors: TracesAuthors, peer: str) -> str:
    """Heavy. Leave a peer's work out; returns a summary."""
    kept = authors.leave_out(peer)
    return f"{short(peer)} is left out of this node's weights: {kept} entries, and all that come"


def export(file: Path, job: LoopJob, shared: bool, now: float) -> str:
    """Heavy. Write the whole model, whole or not at all; returns a summary. UsageError, LocalProblem when it cannot be.

    A directory gets the files that `from_pretrained` expects. The weights are the average over the last rounds, as the
    node evaluates them; or, if `shared`, those that all members have bit by bit.
    """
    source, policy = job.source, job.policy
    if file.suffix in SUFFIXES:
        check_target(file)
    else:
        try:
            file.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to the directory {file} ({error.strerror}); name another") from None
    weights = policy.weights() if shared and policy.can.entries is not None else policy.readout()
    state, name = source.state_dict(weights), source.file_name
    if file.suffix not in SUFFIXES:
        for part, content in source.config().items():
            write_whole(file / part, content, mode=FILE_MODE, remedy="name another directory")
        file = file / name
    facts = {
        "p2pnode": __version__,
        "date": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        "run": job.context.calls.access.run,
        "job": job.name,
        "task": job.plan.task,
        "round": str(job.train_progress.rounds),
        "weights": "shared" if shared else "average",
    }
    data = pack_state(file.suffix, state, facts)
    write_whole(file, data, mode=FILE_MODE, remedy="name another file")
    found = job.train_progress.evaluation
    said = "" if found is None or found.accuracy is None else f"; accuracy {found.accuracy:.1%}"
    return f"wrote the whole model, {len(state)} tensors, to {file} ({len(data):,} bytes){said}"
