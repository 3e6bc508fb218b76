"""Training loops as they are written by users, in a simulated swarm: real hooks, jobs and policies on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from p2pnode.config.options import JobOptions, Options, TrainOptions
from p2pnode.integrations.join import HookedLoop, LoopExtras
from p2pnode.integrations.ranks import Ranks
from p2pnode.jobs.loop.job import LoopJob
from p2pnode.simulate import Scenario, Simulation, run_sim
from p2pnode.simulate.compute import one_thread

STEP = 0.02  # virtual seconds
T = TypeVar("T")


def spirals(seed: int = 0, classes: int = 3, count: int = 300) -> tuple[Tensor, Tensor]:
    """Points of three spirals, with a little noise."""
    draw = torch.Generator().manual_seed(seed)
    t = torch.rand(count, generator=draw)
    y = torch.randint(classes, (count,), generator=draw)
    angle = 2.5 * t + y * 2 * torch.pi / classes
    x = torch.stack([t * angle.cos(), t * angle.sin()], 1) + 0.02 * torch.randn(count, 2, generator=draw)
    return 3 * x, y


TEST = spirals(99)


def accuracy(model: nn.Module) -> float:
    with torch.no_grad():
        return (model(TEST[0]).argmax(1) == TEST[1]).float().mean().item()


def perceptron(seed: int = 0, hidden: int = 24) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 3))


class Loop:
    """One user's training loop: a model, an optimizer and a part of the data. Fails as the user's loop would."""

    def __init__(
        self,
        seed: int = 0,
        classes: tuple[int, ...] = (0, 1, 2),
        model: nn.Module | None = None,
        make: Callable[[Any], torch.optim.Optimizer] = lambda parts: torch.optim.Adam(parts, 0.01),
        **settings: Any,
    ) -> None:
        self.model = perceptron(seed) if model is None else model
        self.optimizer = make(self.model.parameters())
        x, y = spirals(seed)
        here = torch.isin(y, torch.tensor(classes))
        self.x, self.y = x[here], y[here]
        self.draw = torch.Generator().manual_seed(seed)
        extras = LoopExtras(**{"task": "spirals", "evaluate": accuracy, **settings})
        self.hooked = HookedLoop(self.model, self.optimizer, extras, Ranks())
        self.error: BaseException | None = None
        self.steps = 0

    @property
    def source(self) -> Any:
        return self.hooked.source

    def step(self) -> None:
        """What the user wrote: nothing of it knows of p2pnode."""
        rows = torch.randint(len(self.x), (16,), generator=self.draw)
        loss = nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        self.source.losses.note(loss.item())

    async def run(self) -> None:
        try:
            while not self.source.closing.is_set():
                self.step()
                await asyncio.sleep(STEP)
        except Exception as error:
            self.error = error


class LoopSwarm:
    """Nodes of a simulation, each with a loop. Node 0 founds the run."""

    def __init__(self, loops: list[Loop], policy: str | None = None, seed: int = 1, **train: Any) -> None:
        self.loops = loops
        self.train = TrainOptions(policy=policy, round_seconds=train.pop("round_seconds", 0.5), **train)
        self.simulation = Simulation(Scenario(len(loops), seed, spread=0.0, adjust=self._adjust, sample_every=0))
        self.tasks: list[asyncio.Task[None]] = []

    def _adjust(self, options: Options, index: int, starts: int) -> Options:
        job = JobOptions("main", "loop", {"loop": self.loops[index].source})
        train = self.train if index == 0 and starts == 1 else TrainOptions()
        return replace(options, run=replace(options.run, meet_only=False), train=train, jobs=(job,))

    def start(self, index: int) -> None:
        self.simulation.restart(index)
        self.tasks.append(asyncio.create_task(self.loops[index].run()))

    def node(self, index: int) -> Any:
        return self.simulation.processes[index].node

    def job(self, index: int) -> LoopJob:
        found = self.node(index).jobs.jobs["main"]
        assert isinstance(found, LoopJob)
        return found

    def problem(self, index: int) -> BaseException | None:
        return self.simulation.ended.get(index)

    async def until(self, what: Callable[[], bool], seconds: float = 600.0) -> None:
        """Let virtual time pass until this is so."""
        async with asyncio.timeout(seconds):
            while not what():
                if self.simulation._bugs:
                    raise self.simulation._bugs[0]
                await asyncio.sleep(0.1)

    async def finish(self) -> None:
        for loop in self.loops:
            loop.source.closing.set()
        await asyncio.gather(*self.tasks)
        await self.simulation._leave()
        for loop in self.loops:
            loop.hooked.close()
        if self.simulation._bugs:
            raise self.simulation._bugs[0]


def run_loops(swarm: LoopSwarm, scenario: Callable[[LoopSwarm], Awaitable[T]]) -> T:
    """Run a scenario of loops in virtual time, and let all leave at the end."""

    async def main() -> T:
        try:
            return await scenario(swarm)
        finally:
            await swarm.finish()

    with one_thread():
        return run_sim(main())
