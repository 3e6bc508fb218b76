"""The paths job of one node: it trains the paths assigned to it and shares each block with those who train it too.

choose    from what all announce: which paths need this node, with the reason
train     K local steps on the path's samples → each block records, publishes and merges its part
share     each block by itself, with the members that hold it
keep      copies of paths that few train, so that they outlive their workers
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from ...config.until import Until
from ...merging.policy import RoundFacts
from ...merging.schedule import planned_rate
from ...runtime.routes import Routes
from ...training.evaluation import Cadence
from ...training.progress import Monitor, Reached, reached
from ...training.rounds import local_steps, mean_steps, shortened
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import Diverged, LocalProblem, NetworkDown, PeerError, PeerRefused
from ...wire.ids import PeerId
from ...wire.messages import JobAnnouncement
from ...wire.status import ExchangeRow, JobStatus
from ...wire.types import Seconds
from ..contract import Job, JobContext, JobPace
from ..train.generations import Generations
from .assign import PathMove, Worker, assign, preferred, write_worker
from .commands import execute
from .experts import ExpertBook, GetExpert, SwapExperts
from .holding import HeldBlocks
from .messages import CopyKept, KeepCopy
from .plan import PathsOptions
from .reading import PathReader
from .setup import PathsSetup
from .status import paths_status
from .work import PathWork

LOOKS, LOOK_PAUSE = 20, 0.25  # how often and at which intervals a newcomer looks for what others train
SETTLE: Seconds = 6.0  # for which a move must stay the right one, so that what others announced has come
TURN_ROUNDS = 20  # that a node with several paths trains each in turn
FIRST_STEPS = 5.0
SHORTEST_ROUND: Seconds = 0.1
EVALUATE_EVERY = 5.0  # rounds, at their intended length
ANNOUNCE_EVERY: Seconds = 60.0  # how good this node's path is
KEEP_EVERY: Seconds = 30.0  # copies are brought up to date
FEW_WORKERS = 2  # a path of so many or fewer has a keeper besides
SLOWEST = 1 / 64
SWAP_EVERY: Seconds = 15.0  # offers of experts are compared with a member
TOLD_AT_ONCE = 8

Rows = NDArray[np.int64]


class PathsJob(Job):
    """A model of several paths, of which this node trains one, or some in turn."""

    def __init__(self, context: JobContext, setup: PathsSetup, options: PathsOptions, rows: Sequence[Rows]) -> None:
        super().__init__(context)
        self.setup = setup
        self.grid = setup.plan.grid
        self.held = HeldBlocks(context, setup, options.train.max_disk)
        self.works: dict[int, PathWork] = {}  # the paths that this node trains
        self.reason = ""  # why it trains them
        self.kept: frozenset[int] = frozenset()  # paths of which it keeps copies
        self.local_steps = 0
        self.rounds = 0
        self.monitor = Monitor()
        self._rows = rows
        self._services = context.services
        self._me = context.services.identity.peer_id
        self._clock = context.services.seams.clock
        self._until: Until | None = options.train.until
        if self._until is None and setup.plan.train.steps:
            self._until = Until("steps", setup.plan.train.steps)
        self._begun = self._clock.monotonic()
        self._moved_at = 0  # rounds when this node last moved
        self._wanted: tuple[frozenset[int], Seconds] | None = None  # a move that is due, and since when
        self._announced: tuple[bytes, Seconds] = (b"", self._begun)  # the latest announcement, and when
        self._turn = 0
        self._evaluating = Cadence(self._begun, 0.0)
        self.experts = ExpertBook(context, setup.plan.router.features, setup.host.layout.size)
        self.training: set[asyncio.Task[str]] = set()  # of experts
        self.reader = PathReader(context, setup, self.held, self.works, self.experts)
        self.generations = Generations(self._services.seams, self.reader.begin_text)
        own = Routes({KeepCopy: self._answer_keep, SwapExperts: self.experts.answer}, {GetExpert: self.experts.stream})
        self.routes = self.held.routes.plus(own)

    # ---- life ----

    async def run(self) -> str:
        self._begun = self._clock.monotonic()
        await self._look_around()
        async with asyncio.TaskGroup() as group:
            aside = [group.create_task(loop()) for loop in (self._keep_copies, self._swap_experts)]
            reason = await self._keep_training(group)
            for task in (*aside, *self.training):
                task.cancel()
            for block in self._trained_blocks():
                await self.held.open[block].exchange_loop.once()  # the last entry too should get around
            self.held.share((), group)
        return reason

    async def _look_around(self) -> None:
        """Wait until it is known what others train, unless there is nobody."""
        for _ in range(LOOKS):
            if self.context.founder == self._me or self.held.workers():
                return
            await asyncio.sleep(LOOK_PAUSE)

    async def _keep_training(self, group: asyncio.TaskGroup) -> str:
        while not (why := self._goal_reached()):
            await self._services.limiter.free()
            begun = self._clock.monotonic()
            await self._follow_assignment(group)
            work = self.current()
            if work is None or not work.trainer.samples:
                await asyncio.sleep(self.setup.plan.train.round_seconds)
                continue
            await self._round_or_rollback(work)
            await self._now_and_then(work)
            await asyncio.sleep(max(0.0, begun + SHORTEST_ROUND - self._clock.monotonic()))
        return why

    def _goal_reached(self) -> str:
        if self._until is None:
            return ""
        now = self._clock.monotonic() - self._begun
        monitor, steps = self.monitor, self._run_steps()
        return reached(self._until, Reached(self.rounds, now, None, monitor.norm, monitor.calm_rounds, steps))

    def _run_steps(self) -> int:
        """Local steps that members have done on average on the path of this node that has got least far."""
        return min((work.at for work in self.works.values()), default=0)

    # ---- which paths ----

    def worker(self) -> Worker:
        """What this node announces of itself."""
        able = frozenset(path for path, rows in enumerate(self._rows) if len(rows))
        tested = [work.tested.loss for work in self.works.values() if work.tested is not None]
        honest = [work.tested_by_beginning.loss for work in self.works.values() if work.tested_by_beginning is not None]
        losses = [mean(found) if found else None for found in (tested, honest)]
        return Worker(self._speed, frozenset(self.works), able, self.rounds - self._moved_at, *losses)

    def table(self) -> dict[str, Worker]:
        """What all members announce, this node included."""
        return {**{str(peer): worker for peer, worker in self.held.workers().items()}, self._me: self.worker()}

    @property
    def _speed(self) -> float:
        speeds = [work.trainer.speed for work in self.works.values()]
        return max(speeds, default=0.0) or self._services.seams.speed or 1.0

    def _move(self) -> PathMove | None:
        """What this node should do according to the table that all members compute."""
        return assign(self.table(), [float(max(1, samples)) for samples in self.setup.plan.samples]).get(self._me)

    async def _follow_assignment(self, group: asyncio.TaskGroup) -> None:
        """Train other paths, if that has been right for a while; at once where this node trains none."""
        move, now = self._move(), self._clock.monotonic()
        if move is None:
            self._wanted = None
        elif self._wanted is None or self._wanted[0] != move.paths:
            self._wanted = (move.paths, now)
        if move is not None and self._wanted is not None and (not self.works or now - self._wanted[1] >= SETTLE):
            self._wanted = None
            await self._change_paths(move, group)

    async def _change_paths(self, move: PathMove, group: asyncio.TaskGroup) -> None:
        seams, before = self._services.seams, dict(self.works)
        for path in sorted(move.paths - set(before)):
            joined, begun = await self.held.joined(path)
            work = PathWork(
                self.context, self.setup, path, joined, self._rows[path], self.context.compute.longest_piece
            )
            warning = await seams.compute(work.load)
            if warning:
                self._services.events.say("state", warning, warning=True)
            self.works[path] = work
            names = ", ".join(
                f"{block.block} ({how})" for block, how in zip(joined.blocks, begun, strict=True) if how != "resumed"
            )
            self._services.events.say(
                "path", f"trains path {self.grid.name(path)}: {move.reason}; {names or 'resumed'}"
            )
        for path in set(before) - move.paths:
            await self._save_work(self.works.pop(path))
        self.reason, self._moved_at, self._turn = move.reason, self.rounds, 0
        self.held.share(self._trained_blocks(), group)
        await self._announce()

    def _trained_blocks(self) -> set[str]:
        return {block for path in self.works for block in self.grid.blocks(path)}

    async def _announce(self) -> None:
        self._announced = (self.announcement().state, self._clock.monotonic())
        await self.context.membership.tell(self.context.members())

    def current(self) -> PathWork | None:
        """The path to train now: where there are several, each for some rounds in turn."""
        works, planned = [self.works[path] for path in sorted(self.works)], self.setup.plan.train.steps
        works = [work for work in works if not planned or work.at < planned] or works
        return works[self._turn // TURN_ROUNDS % len(works)] if works else None

    # ---- rounds ----

    async def _round_or_rollback(self, work: PathWork) -> None:
        try:
            await self._round(work)
            work.rate = min(1.0, work.rate * 1.1)
        except Diverged as problem:
            work.rate = max(SLOWEST, work.rate / 2)
            text = f"{problem}; back to the last good weights, with a lower learning rate"
            self._services.events.say("diverged", text, warning=True)

    async def _round(self, work: PathWork) -> None:
        seams, plan = self._services.seams, self.setup.plan.train
        speed = work.trainer.speed * self.context.compute.fraction()
        usual = mean_steps(speed, plan.round_seconds, plan.max_steps) if speed else FIRST_STEPS
        pace = work.joined.pace()
        steps = local_steps(shortened(usual, pace.steps), seams.rng, plan.max_steps)
        rate = pace.rate * work.rate * planned_rate(work.at, plan.steps)
        begun, result = await work.steps.train(steps, rate, pace.at)
        norms = []
        for block in work.joined.blocks:
            peers = len(block.members.active()) + 1
            budget = block.partner_exchange.link.budget(plan.round_seconds, peers)
            facts = RoundFacts(result.steps, result.loss, result.samples, peers, budget)
            part = block.part
            merged = await block.end_round(part.take(begun), part.take(result.weights), facts)
            norms.append((part.size, merged.update_norm))
        self.monitor.note(sum(size * norm for size, norm in norms) / sum(size for size, _ in norms))
        work.loss = result.loss
        work.rounds += 1
        self.rounds += 1
        self._turn += 1
        self.local_steps += result.steps

    async def _now_and_then(self, work: PathWork) -> None:
        now = self._clock.monotonic()
        if self._evaluating.due(now):
            await self._services.seams.compute(work.evaluate)
            self._evaluating.done(now, self._clock.monotonic(), EVALUATE_EVERY * self.setup.plan.train.round_seconds)
        for block in work.joined.blocks:
            await block.save_if_due()
        if self.rounds % TURN_ROUNDS == 0:
            await self._save_work(work)
        if now - self._announced[1] >= ANNOUNCE_EVERY and self.announcement().state != self._announced[0]:
            await self._announce()

    # ---- copies ----

    async def _keep_copies(self) -> None:
        """Keep copies of paths that few train, each at one member that does not train it."""
        while True:
            await asyncio.sleep(KEEP_EVERY)
            table = self.table()
            kept = {path for path in range(self.grid.paths) if keeper_of(path, table) == self._me}
            for path in sorted(kept):
                await self._keep_copy(path)
            kept |= {path for path in self.kept if not any(path in worker.paths for worker in table.values())}
            self.kept = frozenset(kept - set(self.works))
            used = {block for path in (*self.kept, *self.works) for block in self.grid.blocks(path)}
            await self.held.close([block for block in self.held.open if block not in used])

    async def _keep_copy(self, path: int) -> None:
        for block in self.grid.blocks(path):
            await self.held.refresh(block)
        self.kept |= {path}

    async def _answer_keep(self, peer: PeerId, request: KeepCopy) -> CopyKept:
        if request.path >= self.grid.paths:
            raise PeerRefused("unknown path", "this job has no such path")
        if peer not in self.held.workers() or request.path not in self.held.workers()[peer].paths:
            raise PeerRefused("not yours", "only those who train a path may ask to keep it")
        await self._keep_copy(request.path)
        return CopyKept()

    @property
    def unreplicated(self) -> int:
        """Paths that nobody else trains, while there are others who could keep a copy."""
        workers = self.held.workers().values()
        return sum(not any(path in worker.paths for worker in workers) for path in self.works)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving: somebody keeps a copy of each path that nobody else trains."""
        workers = self.held.workers()
        for path in sorted(self.works):
            if not workers or any(path in worker.paths for worker in workers.values()):
                continue
            keeper = PeerId(preferred(path, list(workers))[0])
            with contextlib.suppress(PeerError, NetworkDown, TimeoutError):
                await self.context.calls.ask(keeper, KeepCopy(path), CopyKept, limit)
                self._services.events.say("path", f"another member keeps path {self.grid.name(path)}")

    # ---- experts ----

    async def _swap_experts(self) -> None:
        while True:
            members = self.context.members()
            if members:
                await self.experts.swap(self._services.seams.rng.choice(members))
            await asyncio.sleep(SWAP_EVERY)

    async def tell_experts(self) -> None:
        """Tell some members at once that an expert was added or withdrawn."""
        members = self.context.members()
        chosen = self._services.seams.rng.sample(members, min(TOLD_AT_ONCE, len(members)))
        await asyncio.gather(*(self.experts.swap(peer) for peer in chosen))

    # ---- disk ----

    async def save(self, limit: Seconds | None = None) -> None:
        for block in list(self.held.open.values()):
            await block.save(limit)
        for work in list(self.works.values()):
            await self._save_work(work)

    async def _save_work(self, work: PathWork) -> None:
        try:
            await self._services.seams.compute(work.save)
        except LocalProblem as problem:
            self._services.events.say("disk", f"the steps of a path were not saved: {problem}", warning=True)

    # ---- for peers and views ----

    def announcement(self) -> JobAnnouncement:
        return JobAnnouncement(self.name, state=write_worker(self.worker()))

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        return await execute(request, self)

    def pace(self) -> JobPace:
        samples = sum(work.trainer.samples for work in self.works.values())
        return JobPace(self.local_steps, samples, self._speed if self.works else 0.0)

    def exchanges(self) -> Sequence[ExchangeRow]:
        return [row for block in self.held.open.values() for row in block.exchanges()]

    def status(self) -> JobStatus:
        return paths_status(self)


def keeper_of(path: int, table: dict[str, Worker]) -> str:
    """Who keeps a copy of a path that few train; "" where many do, or nobody could."""
    workers = [peer for peer, worker in table.items() if path in worker.paths]
    others = [peer for peer, worker in table.items() if path not in worker.paths]
    return preferred(path, others)[0] if others and 0 < len(workers) <= FEW_WORKERS else ""
