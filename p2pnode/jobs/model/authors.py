"""Commands about the authors of entries: whose work is in the weights, leave somebody out, ban by a signed veto."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...compression.weights import WeightLayout
from ...merging.capabilities import TracesAuthors
from ...merging.deltaset.vetoes import VetoCount
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import UsageError, near
from ...wire.ids import short

if TYPE_CHECKING:
    from ...discovery.services import Services
    from .job import ModelJob


def find_author(name: str, authors: set[str], names: dict[str, str]) -> str:
    """The author with this id, end of an id, or name. UsageError when there is none, or several."""
    found = [peer for peer in authors if name and (peer.endswith(name) or names.get(peer) == name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(names.get(peer) or short(peer) for peer in authors)) or "nobody yet"
    kind = "several authors are" if found else "no author of entries is"
    raise UsageError(
        f"{kind} called {name[:60]!r}{near(name, names.values())}; entries are known of {known}; give the peer id"
    )


async def execute_about_authors(
    request: ControlRequest,
    job: ModelJob,
    layout: WeightLayout,
    leave_out: Callable[[TracesAuthors, str], str],
    services: Services,
) -> ControlAnswer:
    """Carry out `blame`, `revert`, `ban` or `unban`. UsageError where the policy knows no authors.

    `leave_out` is what `revert` does, heavy; it returns a summary.
    """
    authors = job.policy.can.authors
    if authors is None:
        raise UsageError("this run's policy does not know whose work is in the weights; only deltaset does")
    if request.do in ("ban", "unban"):
        return await _ban(request, job, authors, services)
    if request.do == "blame":
        return ControlAnswer(blame=await services.seams.compute(lambda: authors.shares(layout)))
    peer = find_author(request.peer, authors.authors(), {known.id: known.name for known in services.table})
    summary = await services.seams.compute(lambda: leave_out(authors, peer))
    await job.save()
    services.events.say("reverted", summary)
    return ControlAnswer(said=summary)


async def _ban(request: ControlRequest, job: ModelJob, authors: TracesAuthors, services: Services) -> ControlAnswer:
    """Sign a veto against an author, or withdraw it; returns what follows. UsageError for an unknown author."""
    known = authors.authors() | set(authors.vetoes())
    peer = find_author(request.peer, known, {one.id: one.name for one in services.table})
    if peer == services.identity.peer_id:
        raise UsageError("a node cannot ban itself; `python -m p2pnode leave` ends it")
    active = request.do == "ban"
    count = await services.seams.compute(lambda: authors.veto(peer, active, request.reason))
    await job.save()
    job.exchange_loop.wake()
    summary = f"{'signed' if active else 'withdrew'} a veto against {short(peer)}; {describe_vetoes(count)}"
    services.events.say("banned", summary)
    return ControlAnswer(said=summary)


def describe_vetoes(count: VetoCount) -> str:
    """How things stand with the vetoes against an author, in words."""
    if count.excluded:
        state = "its entries no longer count"
    else:
        state = f"{count.signed} of {count.needed} that are needed, or that of a moderator"
    return state + "".join(f"; {reason}" for reason in count.reasons[:3])
