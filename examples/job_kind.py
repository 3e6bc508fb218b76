"""A kind of work of your own: members agree on the mean of their numbers by averaging in pairs.

The pyproject.toml of its package has an entry point:      [project.entry-points."p2pnode.jobs"]
                                                           mean = "job_kind:KIND"
A run with it and a model:          python -m p2pnode --job model=digits --job temperature,kind=mean,value=21.5
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from p2pnode.discovery.services import Services
from p2pnode.jobs.contract import Job, JobContext, JobKind, options_reader
from p2pnode.runtime.routes import Routes
from p2pnode.wire.errors import NetworkDown, PeerError
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import Message
from p2pnode.wire.status import Figure, JobState, JobStatus, JobTable

Number = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]  # bounds refuse what is not finite, too


class MeanPlan(msgspec.Struct):
    """What all members agree on: it is in the run's manifest."""

    every: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 1.0  # seconds between two calls of a member


class MeanOptions(MeanPlan):
    """What a user may write after `--job NAME,kind=mean`; `every` only when founding."""

    value: Number = 0.0  # this node's own number


class Average(Message, frozen=True, tag="average"):
    """Asks the peer to go on with the mean of its number and ours, as we shall."""

    mine: Number


class AverageIs(Message, frozen=True, tag="average is"):
    mean: Number


class Mean(Job):
    """This node's part in finding the mean."""

    def __init__(self, plan: MeanPlan, value: float, context: JobContext) -> None:
        super().__init__(context)
        self.routes = Routes({Average: self._meet})
        self._seams, self._every, self._file = context.services.seams, plan.every, f"{context.folder}/mean"
        saved = self._seams.storage.read(self._file)
        self._value = value if saved is None else float(saved)
        self._met: dict[str, int] = {}  # how often, by peer

    async def run(self) -> str:
        while True:  # until the node leaves
            await asyncio.sleep(self._every)
            members = self.context.members()
            if members:
                await self._call(self._seams.rng.choice(members))
            await self.save()

    async def _call(self, peer: PeerId) -> None:
        before = self._value
        try:
            answer = await self.context.calls.ask(peer, Average(before), AverageIs)
        except (PeerError, NetworkDown):
            return  # it is gone, or does not take part yet; another one is asked next time
        self._value += answer.mean - before  # others may have called meanwhile
        self._met[peer] = self._met.get(peer, 0) + 1

    def _meet(self, peer: PeerId, request: Average) -> AverageIs:
        self._value = (self._value + request.mine) / 2
        return AverageIs(self._value)

    async def save(self, limit: float | None = None) -> None:
        self._seams.storage.write(self._file, str(self._value).encode())

    def status(self) -> JobStatus:
        calls = sum(self._met.values())
        mean = Figure("mean", self._value, "mean so far", help="What this node holds for the mean of all numbers.")
        made = Figure("calls", calls, "calls made", help="Times it averaged with another node.", total=True)
        table = JobTable("peers it called", (("peer", "peer"), ("times", "")), tuple(self._met.items()))
        return JobStatus(state=JobState(figures=(mean, made)), steps=calls, tables=(table,))


async def found(options: MeanOptions, services: Services) -> dict[str, Any]:
    return {"every": options.every}


async def prepare(plan: dict[str, Any], options: MeanOptions, context: JobContext) -> Job:
    return Mean(msgspec.convert(plan, MeanPlan), options.value, context)


KIND = JobKind(options_reader(MeanOptions), found, prepare)
