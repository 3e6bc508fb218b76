"""Texts that a running node's model continues on its user's command, in pieces: training goes on between them."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from ...compression.weights import Floats
from ...runtime.seams import Seams
from ...tasks.errors import task_errors
from ...tasks.generation import Generation
from ...tasks.task import Task
from ...training.trainer import Trainer
from ...wire.bounded import put_bounded
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import LocalProblem
from ...wire.types import Seconds

MAX_GENERATIONS = 4  # at a time; the oldest is forgotten
PIECE: Seconds = 0.25  # of compute time, in which training waits


@dataclass
class RunningText:
    """A text under way: its pieces, and what must be entered while the next one is asked for."""

    task: Task
    pieces: Iterator[str]
    loaded: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext


Begin = Callable[[ControlRequest], Awaitable[RunningText]]


def how_of(request: ControlRequest) -> Generation:
    """How a text is continued, as the user asked for it."""
    return Generation(request.length, request.temperature, request.top_k, request.seed)


def texts_of(seams: Seams, trainer: Trainer, readout: Callable[[], Floats]) -> Begin:
    """Begins texts of one model, with its weights of that moment, however training goes on."""
    host = trainer.model_host

    @contextlib.contextmanager
    def loaded(weights: Floats) -> Iterator[None]:
        with trainer.fitted(weights):
            host.model.eval()
            yield

    def begun(request: ControlRequest) -> RunningText:
        weights = readout().copy()
        with task_errors(host.task, "generate"):
            pieces = host.task.generate(host.model, request.prompt, how_of(request))
        return RunningText(host.task, pieces, lambda: loaded(weights))

    async def begin(request: ControlRequest) -> RunningText:
        return await seams.compute(lambda: begun(request))

    return begin


class Generations:
    """The texts under way. Each is asked for piece by piece; one that nobody asks for any more is forgotten."""

    def __init__(self, seams: Seams, begin: Begin) -> None:
        self._clock = seams.clock
        self._compute = seams.compute
        self._begin = begin
        self._begun = 0
        self._running: dict[str, RunningText] = {}

    async def answer(self, request: ControlRequest) -> ControlAnswer:
        """The next piece of a text; UsageError when the task generates none, LocalProblem when it was forgotten."""
        name = request.generation
        if not name:
            self._begun += 1
            name = str(self._begun)
            running = await self._begin(request)
            put_bounded(self._running, name, running, MAX_GENERATIONS)
        elif name not in self._running:
            raise LocalProblem("this text was forgotten, because others were asked for; begin anew")
        running = self._running[name]
        text, over = await self._compute(lambda: self._piece(running))
        if over:
            self._running.pop(name, None)
        return ControlAnswer(said=text, generation="" if over else name)

    def _piece(self, running: RunningText) -> tuple[str, bool]:
        """Heavy. As much text as comes in PIECE seconds, and whether it is over."""
        text, end = "", self._clock.monotonic() + PIECE
        with running.loaded(), task_errors(running.task, "generate"):
            for piece in running.pieces:
                text += piece
                if self._clock.monotonic() >= end:
                    return text, False
        return text, True
