"""What the user orders of a running node: export, leave a peer out, tell the log and whose work is in the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...discovery.services import Services
from ...merging.capabilities import TracesAuthors
from ...tasks.task import Evaluation
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import UsageError
from ...wire.ids import short
from .export import as_safetensors, exported, write_export

if TYPE_CHECKING:
    from .job import TrainJob


async def carry_out(request: ControlRequest, learning: TrainJob, services: Services) -> ControlAnswer:
    """Do it and say what was done; LocalProblem or UsageError when it cannot be done."""
    if request.do == "log":
        return ControlAnswer(merges=tuple(learning.train_progress.merges))
    if request.do == "export":
        return ControlAnswer(
            said=await services.seams.compute(lambda: export(learning, Path(request.file), request.ema))
        )
    if request.do == "shards":
        now, shards = services.seams.clock.monotonic(), learning.shards
        return ControlAnswer(shards=(shards.one(request.shard, now),) if request.shard else shards.all(now))
    authors, layout = learning.policy.can.authors, learning.model_host.layout
    if authors is None:
        raise UsageError("only in a run with the policy deltaset is it known whose work is in the weights")
    if request.do == "blame":
        return ControlAnswer(blame=await services.seams.compute(lambda: authors.shares(layout)))
    peer = find_author(request.peer, authors.authors(), {known.id: known.name for known in services.table})
    words = await services.seams.compute(lambda: revert(learning, authors, peer))
    await learning.save()
    services.events.say("reverted", words)
    return ControlAnswer(said=words)


def export(learning: TrainJob, file: Path, ema: bool) -> str:
    """Heavy. Write the weights whole or not at all."""
    facts = {"task": learning.model_host.task.name, "rounds": str(learning.train_progress.rounds)}
    layout = learning.model_host.layout
    data = as_safetensors(layout, exported(learning.policy, ema), facts)
    write_export(file, data)
    return f"wrote {layout.size:,} parameters to {file} ({len(data):,} bytes)"


def find_author(words: str, authors: set[str], names: dict[str, str]) -> str:
    """The one author of entries that is meant: by id, by the end of it, or by name. UsageError when there is none."""
    found = [peer for peer in authors if words and (peer.endswith(words) or names.get(peer) == words)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(names.get(peer) or short(peer) for peer in authors)) or "nobody yet"
    kind = "several authors are" if found else "no author of entries is"
    raise UsageError(f"{kind} called {words[:60]!r}; entries are known of {known}; give the peer id")


def revert(learning: TrainJob, authors: TracesAuthors, peer: str) -> str:
    """Heavy. Leave a peer out and tell what that does to the test loss."""
    again, policy = peer in authors.left_out, learning.policy
    before = learning.trainer.evaluate(policy.weights())
    kept = authors.leave_out(peer)
    after = learning.trainer.evaluate(policy.weights())
    learning.train_progress.evaluation = after
    what = "was left out already" if again else f"is left out: {kept} entries, and all that come"
    return (
        f"{short(peer)} {what}; test loss {before.loss:.4f} before, {after.loss:.4f} after{_accuracies(before, after)}"
    )


def _accuracies(before: Evaluation, after: Evaluation) -> str:
    if before.accuracy is None or after.accuracy is None:
        return ""
    return f"; accuracy {before.accuracy:.1%} before, {after.accuracy:.1%} after"
