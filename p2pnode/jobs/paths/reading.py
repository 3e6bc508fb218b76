"""Reads paths out: one for a file, the best two for a prompt. Blocks that are not here come from their holders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...compression.weights import Floats, write_weights
from ...tasks.errors import task_errors
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import UsageError
from ...wire.status import JobTable
from ..contract import JobContext
from ..train.export import ExportSource, write_model
from ..train.generations import RunningText, how_of
from .experts import ExpertBook
from .holding import HeldBlocks
from .mixing import best
from .routing import ROUTER_COLUMNS, router_rows
from .setup import PathsSetup
from .work import PathWork

MIXED = 2  # paths or experts that continue a prompt
ALL = "all"


class MixedModel(NamedTuple):
    """One model of a mixture: the name of its path or expert, its weight, and its weights."""

    name: str
    share: float
    weights: Floats


class PathReader:
    """Gives the weights of any path or expert, whoever trains it."""

    def __init__(
        self,
        context: JobContext,
        setup: PathsSetup,
        held: HeldBlocks,
        works: dict[int, PathWork],
        experts: ExpertBook,
    ) -> None:
        self._context = context
        self._setup = setup
        self._grid = setup.plan.grid
        self._held = held
        self._works = works
        self._experts = experts

    async def weights(self, path: int) -> Floats:
        """The weights of a path, as far as the members that train it have got."""
        work = self._works.get(path)
        if work is None:
            for block in self._grid.blocks(path):
                await self._held.refresh(block)
            joined, _ = await self._held.joined(path)
        else:
            joined = work.joined
        return await self._context.services.seams.compute(joined.readout)

    # ---- files ----

    async def export(self, request: ControlRequest) -> ControlAnswer:
        """Write the path that is asked for, or one file for each path."""
        if request.path == ALL:
            target = Path(request.file)
            said = []
            for path in range(self._grid.paths):
                name = f"{target.stem}-{self._grid.name(path).replace('/', '-')}{target.suffix}"
                said.append(await self._export_one(target.with_name(name), path))
            return ControlAnswer(said="\n".join(said))
        own = next(iter(sorted(self._works)), 0)
        return ControlAnswer(
            said=await self._export_one(Path(request.file), self._grid.find(request.path) if request.path else own)
        )

    async def _export_one(self, file: Path, path: int) -> str:
        services, plan = self._context.services, self._setup.plan
        if not self._works:
            raise UsageError("this node trains no path yet; try again when it does")
        work = next(iter(self._works.values()))
        run, now = self._context.calls.access.run, services.seams.clock.time()
        name = self._grid.name(path)
        source = ExportSource(run, f"{self._context.name} path {name}", plan.train, work.rounds, "", now)
        weights = await self.weights(path)
        said = await services.seams.compute(partial(write_model, file, work.trainer, weights, "average", source))
        return f"path {name}: {said}"

    # ---- texts ----

    async def begin_text(self, request: ControlRequest) -> RunningText:
        """Continue a prompt with the paths and experts that suit it best, or with the one that was asked for."""
        task, seams = self._setup.host.task, self._context.services.seams
        if request.path:
            path = self._grid.find(request.path)
            chosen = [MixedModel(request.path, 1.0, await self.weights(path))]
        else:
            chosen = await self.mixture(request.prompt)
        layout = self._setup.host.layout

        def begun() -> RunningText:
            models = []
            for one in chosen:
                model = task.model().float().eval()
                write_weights(model, layout, one.weights)
                models.append(model)
            with task_errors(task, "generate"):
                mixed = task.mixture(models, [one.share for one in chosen]).eval()
                return RunningText(task, task.generate(mixed, request.prompt, how_of(request)))

        names = ", ".join(f"{one.name} ({one.share:.0%})" for one in chosen)
        self._context.services.events.say("path", f"a prompt goes to {names}")
        return await seams.compute(begun)

    async def mixture(self, prompt: str) -> list[MixedModel]:
        """The best paths and experts for a prompt, by its beginning."""
        host, router = self._setup.host, self._setup.plan.router
        with task_errors(host.task, "features"):
            counts = host.task.features(host.task.as_samples(prompt or "\n"), router.features, router.prefix)
        if counts is None:
            raise UsageError(f"task {host.task.name} cannot route a prompt")
        found = counts.numpy().astype(np.float32)
        experts = await self._experts.usable()
        scores = np.concatenate([router.beginnings(found), *(one.scores(found)[:, None] for one in experts)], axis=1)
        weights = best(scores, MIXED)[0]
        chosen = []
        for place in np.argsort(-weights, kind="stable")[:MIXED]:
            if place < self._grid.paths:
                name, vector = self._grid.name(int(place)), await self.weights(int(place))
            else:
                expert = experts[place - self._grid.paths]
                name, vector = f"expert {expert.name}", await self._experts.weights(expert)
            chosen.append(MixedModel(name, float(np.exp(weights[place])), vector))
        return chosen

    # ---- the router ----

    async def router_table(self) -> JobTable:
        """What each path got of this node's data."""
        rows = await self._context.services.seams.compute(
            lambda: router_rows(self._setup.host, self._grid, self._setup.train)
        )
        return JobTable("router", ROUTER_COLUMNS, tuple(rows))
