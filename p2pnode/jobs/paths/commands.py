"""Control commands for a paths job: router, export, generate, expert."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import Diverged, LocalProblem, UsageError
from ...wire.status import JobTable
from ...wire.types import Seconds
from ..contract import own_seed
from .expert_training import PIECE, ExpertTraining, begin_training, check_name, make_offer, open_data, train_piece
from .experts import MAX_EXPERTS, MAX_OF_AUTHOR, signed

if TYPE_CHECKING:
    from .job import PathsJob

PATIENCE: Seconds = 60.0  # of a user who waits for an expert

EXPERT_COLUMNS = (
    ("expert", ""), ("author", "peer"), ("version", ""), ("from path", ""), ("samples", ""), ("used here", ""),
)  # fmt: skip


async def execute(request: ControlRequest, job: PathsJob) -> ControlAnswer:
    """Carry out a command and return what was done; LocalProblem or UsageError when it cannot be done."""
    match request.do:
        case "router":
            return ControlAnswer(tables=(await job.reader.router_table(),))
        case "export":
            return await job.reader.export(request)
        case "generate":
            return await job.generations.answer(request)
        case "expert":
            return await _expert(request, job)
    raise UsageError(f"a job of paths has no {request.do!r}; it has router, export, generate and expert")


async def _expert(request: ControlRequest, job: PathsJob) -> ControlAnswer:
    book, name = job.experts, request.expert
    match request.action:
        case "add":
            return ControlAnswer(said=await _add(request, job))
        case "remove":
            return ControlAnswer(said=await _remove(name, job))
        case "use" | "ignore":
            book.ignore(name, request.action == "use")
            what = "is used in mixtures here" if request.action == "use" else "is not used here any more"
            return ControlAnswer(said=f"the expert {name} {what}")
    return ControlAnswer(tables=(expert_table(job),))


def expert_table(job: PathsJob) -> JobTable:
    """The experts that members offer."""
    rows = [
        (one.name, one.author, one.version, job.grid.name(min(one.path, job.grid.paths - 1)), one.samples,
         "no" if one.name in job.experts.ignored else "yes")
        for one in job.experts.offered()
    ]  # fmt: skip
    return JobTable("experts", EXPERT_COLUMNS, tuple(rows))


async def _add(request: ControlRequest, job: PathsJob) -> str:
    """Train an expert on data of this node's own and offer it; training the node's path goes on between its steps."""
    compute, me = job.context.services.seams.compute, job.context.services.identity
    check_name(request.expert)
    if not request.data:
        raise UsageError("an expert needs data of your own: --data PATH")
    known = job.experts.offers.get((me.peer_id, request.expert))
    own = [one for one in job.experts.offers.values() if one.author == me.peer_id]
    if known is None and (len(own) >= MAX_OF_AUTHOR or len(job.experts.offers) >= MAX_EXPERTS):
        raise UsageError(
            f"a member offers at most {MAX_OF_AUTHOR} experts, and a job has at most {MAX_EXPERTS}; "
            "use the name of an earlier one again"
        )
    host, path = await compute(lambda: open_data(job.setup, request.data))
    weights, seed = await job.reader.weights(path), own_seed(job.context)
    training = await compute(lambda: begin_training(request.expert, host, path, weights, request.steps, seed))
    task = asyncio.create_task(_train(training, job, 1 if known is None else known.version + 1))
    job.training.add(task)
    task.add_done_callback(job.training.discard)
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    if done:
        return task.result()
    return f"the expert {request.expert} is being trained; `p2pnode expert` lists it when it is offered"


async def _train(training: ExpertTraining, job: PathsJob, version: int) -> str:
    """Train an expert to its end and offer it; returns what was done. LocalProblem when training fails."""
    compute, me = job.context.services.seams.compute, job.context.services.identity
    scope, path = job.context.calls.scope, training.path
    try:
        while training.done < training.steps:
            await compute(partial(train_piece, training, job.setup), PIECE)
    except Diverged as problem:
        job.context.services.events.say("expert", f"{training.name} was not made: {problem}", warning=True)
        raise LocalProblem(f"the expert was not made: {problem}") from None
    offer, packed, after = await compute(lambda: make_offer(training, job.setup, scope, me, version))
    job.experts.add(offer, packed)
    await job.tell_experts()
    before = training.before
    change = "" if before is None else f"; loss on its own test data {before.loss:.4f} before, {after.loss:.4f} after"
    return f"offers the expert {offer.name}, from path {job.grid.name(path)}, {training.done} steps{change}"


async def _remove(name: str, job: PathsJob) -> str:
    me, offer = job.context.services.identity, job.experts.find(name)
    if offer.author != me.peer_id:
        raise UsageError(f"the expert {name} is another member's, who alone can withdraw it; `expert ignore {name}`")
    withdrawn = replace(offer, version=offer.version + 1, withdrawn=True, row=b"", signature=b"")
    job.experts.add(signed(withdrawn, me))
    await job.tell_experts()
    return f"the expert {name} is withdrawn; members delete it as they hear of it"
