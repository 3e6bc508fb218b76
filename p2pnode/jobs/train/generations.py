"""Texts that a running node's model continues on its user's command, in pieces: training goes on between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...compression.weights import Floats
from ...runtime.seams import Seams
from ...tasks.errors import task_errors
from ...tasks.generation import Generation
from ...training.trainer import Trainer
from ...wire.bounded import keep_newest
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import LocalProblem
from ...wire.types import Seconds

MAX_GENERATIONS = 4  # at a time; the oldest is forgotten
PIECE: Seconds = 0.25  # of compute time, in which training waits


@dataclass
class _Running:
    weights: Floats  # of the moment it began, however training goes on
    pieces: Iterator[str]


class Generations:
    """The texts under way. Each is asked for piece by piece; one that nobody asks for any more is forgotten."""

    def __init__(self, seams: Seams, trainer: Trainer, readout: Callable[[], Floats]) -> None:
        self._clock = seams.clock
        self._compute = seams.compute
        self._begun = 0
        self._trainer = trainer
        self._readout = readout
        self._running: dict[str, _Running] = {}

    async def answer(self, request: ControlRequest) -> ControlAnswer:
        """The next piece of a text; UsageError when the task generates none, LocalProblem when it was forgotten."""
        name = request.generation
        if not name:
            self._begun += 1
            name = str(self._begun)
            running = await self._compute(lambda: self._begin(request))
            keep_newest(self._running, name, running, MAX_GENERATIONS)
        elif name not in self._running:
            raise LocalProblem("this text was forgotten, because others were asked for; begin anew")
        running = self._running[name]
        text, over = await self._compute(lambda: self._piece(running))
        if over:
            self._running.pop(name, None)
        return ControlAnswer(said=text, generation="" if over else name)

    def _begin(self, request: ControlRequest) -> _Running:
        how = Generation(request.length, request.temperature, request.top_k, request.seed)
        host = self._trainer.model_host
        with task_errors(host.task, "generate"):
            return _Running(self._readout().copy(), host.task.generate(host.model, request.prompt, how))

    def _piece(self, running: _Running) -> tuple[str, bool]:
        """Heavy. As much text as comes in PIECE seconds, and whether it is over."""
        host, text, end = self._trainer.model_host, "", self._clock.monotonic() + PIECE
        with self._trainer.fitted(running.weights), task_errors(host.task, "generate"):
            host.model.eval()
            for piece in running.pieces:
                text += piece
                if self._clock.monotonic() >= end:
                    return text, False
        return text, True
