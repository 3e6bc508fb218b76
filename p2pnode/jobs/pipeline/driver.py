"""A driver of a pipeline: sends micro-batches of its data through the blocks of servers.

Texts, labels and losses stay here. A micro-batch goes forward from server to server, then its gradient comes back
through the same blocks, though not always through the same servers. Many are under way at once, each in its own task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

import torch

from ...compression.weights import Floats
from ...tasks.data import Data, Samples, length
from ...training.batches import Batches, seed_from
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ...wire.ids import PeerId
from ...wire.types import Seconds
from ..contract import JobContext
from .local_blocks import ENDS, LocalBlocks
from .messages import MAX_SETTLED, Backward, Forward, Settle, SettleDone, TensorIs, TicketNumbers
from .plan import PipelineOptions, PipelinePlan
from .routing import CallUnderWay, Direction, Hop, ServerSight, SpanRouter
from .server import SpanServer
from .shared_parts import SharedParts
from .tensors import decode_tensor, distance, encode_tensor

LOOK_EVERY: Seconds = 0.25  # at who is there
MOST_IN_FLIGHT = 256  # micro-batches
WAIT: Seconds = 0.05  # before the next try where nobody can take a call
SAY_AFTER: Seconds = 10.0  # without anybody for some block
SETTLE_EVERY: Seconds = 0.2
SETTLE_TIMEOUT: Seconds = 5.0
EVALUATE_EVERY: Seconds = 30.0
TESTED = 8  # micro-batches of test data, each time
# Distance of two answers to one question from which on one of them must be wrong. Servers of a block are never quite
# equal, and gradients tell more of that than hidden states.
DIFFERENT: Mapping[Direction, float] = {"forward": 0.5, "backward": 0.9}
DISTRUST: Seconds = 600.0
MOST_CHECKS = 16  # that wait; older ones are forgotten
MOST_REFUSALS = 8  # of one call as not computable, before its micro-batch is given up


@dataclass
class DriverCounts:
    """What a driver has done so far."""

    done: int = 0  # micro-batches
    samples: int = 0
    lost: int = 0  # micro-batches that were given up
    late: int = 0  # gradients that a server had taken out again before they were confirmed
    repeated: int = 0  # calls that another server had to do
    busy: int = 0
    checked: int = 0
    liars: int = 0
    loss: float | None = None  # smoothed training loss
    test_loss: float | None = None


@dataclass
class _Unsettled:
    counted: list[TicketNumbers] = field(default_factory=list)
    dropped: list[TicketNumbers] = field(default_factory=list)


class NotComputable(Exception):
    """Several servers say that what they were sent leads to numbers that are not finite."""


class PipelineDriver:
    """Trains with the data of this node."""

    def __init__(
        self,
        context: JobContext,
        plan: PipelinePlan,
        options: PipelineOptions,
        parts: SharedParts,
        data: tuple[Data, Data],
        local: SpanServer | None,
        sights: Callable[[], Mapping[str, ServerSight]],
        drivers: Callable[[], int],
        seed: int,
    ) -> None:
        """`local` is this node's own server; `sights` gives all servers, `drivers` how many nodes drive."""
        services = context.services
        self.counts = DriverCounts()
        self.router = SpanRouter(Random(seed))
        self.waiting_for: list[int] = []  # blocks that nobody holds
        self.recent: list[Seconds] = []  # when the latest micro-batches were done
        self._context = context
        self._services = services
        self._plan = plan
        self._options = options
        self._parts = parts
        self._held: LocalBlocks = parts.held
        self._local = local
        self._sights = sights
        self._drivers = drivers
        self._me = services.identity.peer_id
        self._clock = services.seams.clock
        self._compute = services.seams.compute
        self._rng = Random(seed ^ 1)
        self._data, self._test = data
        self._batches = Batches(torch.arange(len(self._data)), plan.micro_batch, seed_from(seed, "micro-batches"))
        self._number = services.seams.rng.getrandbits(32)  # of the latest micro-batch; differs after a restart
        self._unsettled: dict[str, _Unsettled] = {}
        self._distrusted: dict[str, Seconds] = {}  # peers whose answers were wrong, and until when
        self._since: Seconds | None = None  # when it began to wait for a server
        self._said = False
        self._to_check: deque[tuple[Hop, Forward | Backward, bytes]] = deque(maxlen=MOST_CHECKS)
        self._sum = 0  # samples whose gradients of the ends are added up

    @property
    def samples(self) -> int:
        """That this node trains on."""
        return len(self._data)

    def rate(self, now: Seconds) -> float:
        """Micro-batches a second, lately."""
        recent = self.recent
        return (len(recent) - 1) / (now - recent[0]) if len(recent) > 1 and now > recent[0] else 0.0

    # ---- life ----

    async def run(self) -> None:
        """Train until cancelled."""
        self._look()
        async with asyncio.TaskGroup() as group:
            for loop in (self._keep_looking, self._keep_settling, self._keep_checking, self._keep_evaluating):
                group.create_task(loop())
            under_way: set[asyncio.Task[None]] = set()
            while True:
                await self._services.limiter.free()
                while len(under_way) < self._most_under_way():
                    under_way.add(group.create_task(self._train()))
                _, under_way = await asyncio.wait(under_way, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)

    def _most_under_way(self) -> int:
        """Micro-batches at a time: as many as keep all servers busy, divided among the drivers."""
        if self._options.in_flight:
            return self._options.in_flight
        enough = self.router.enough(self._plan.micro_batch)
        return min(MOST_IN_FLIGHT, max(2, -(-enough // max(1, self._drivers()))))

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self._look()

    def _look(self) -> None:
        """Take in who is there, and say so when a block has had no server for a while."""
        now, reputation = self._clock.monotonic(), self._services.reputation
        self._distrusted = {peer: until for peer, until in self._distrusted.items() if until > now}
        self.router.update(
            {
                peer: sight
                for peer, sight in self._sights().items()
                if peer == self._me or (peer not in self._distrusted and not reputation.ignored(peer, now))
            }
        )
        self.waiting_for = self.router.uncovered(self._plan.blocks)
        if not self.waiting_for:
            if self._said:
                self._services.events.say("pipeline", "all blocks have servers again; goes on")
            self._since, self._said = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._said and now - self._since > SAY_AFTER:
            self._said = True
            blocks = ", ".join(str(block) for block in self.waiting_for)
            text = f"nobody serves block {blocks}; waiting until somebody does"
            self._services.events.say("pipeline", text, warning=True)

    # ---- one micro-batch ----

    async def _train(self) -> None:
        """One micro-batch forward and backward. Whatever servers do, it goes on until it is done."""
        self._number += 1
        number, batch = self._number, self._data.rows(self._batches.next())
        try:
            loss = await self._walk(number, batch)
        except NotComputable as problem:
            self.counts.lost += 1
            self._services.events.say("diverged", f"a micro-batch was given up: {problem}", warning=True)
            await asyncio.sleep(WAIT)
            return
        counts, samples = self.counts, length(batch)
        counts.done += 1
        counts.samples += samples
        counts.loss = loss if counts.loss is None else 0.95 * counts.loss + 0.05 * loss
        self.recent = [*self.recent[-63:], self._clock.monotonic()]

    async def _walk(self, number: int, batch: Samples) -> float:
        samples, bits = length(batch), self._plan.bits
        hidden = await self._compute(partial(self._entered, batch))
        inputs: list[tuple[int, bytes]] = [(0, hidden)]
        hidden = await self._forward_to(self._plan.blocks, inputs, samples)

        def leave() -> tuple[float, bytes]:
            loss, gradient = self._held.leave(decode_tensor(hidden, self._plan.shape(samples)), batch)
            return loss, _written(gradient, bits)

        loss, gradient = await self._compute(leave)
        stop = self._plan.blocks
        while inputs:
            first, hidden = inputs.pop()
            if not await self._can_go_back(first, stop):
                inputs.append((first, hidden))  # nobody holds all of them any more: in smaller pieces, then
                await self._forward_to(stop, inputs, samples, shorter_than=stop - first)
                continue
            gradient = await self._back(first, stop, number, samples, hidden, gradient)
            stop = first
        await self._compute(partial(self._end, batch, gradient, loss / samples))
        return loss / samples

    def _entered(self, batch: Samples) -> bytes:
        return _written(self._held.enter(batch), self._plan.bits)

    def _end(self, batch: Samples, gradient: bytes, loss: float) -> None:
        """The gradient has come home: step the ends where enough are in."""
        samples = length(batch)
        self._held.enter_backward(batch, decode_tensor(gradient, self._plan.shape(samples)))
        self._sum += samples
        part, held = self._parts.open[ENDS], self._held.parts[ENDS]
        part.loss = loss
        if self._sum >= max(self._plan.micro_batch, self._plan.batch // part.holders):
            held.close()
            if held.step(self._sum, part.rate * self._held.outline.task.rate(held.steps)):
                part.samples += self._sum
            self._sum = 0

    async def _forward_to(
        self, last: int, inputs: list[tuple[int, bytes]], samples: int, shorter_than: int | None = None
    ) -> bytes:
        """Hidden states before block `last`; what each call began from is added to `inputs`.

        With `shorter_than` it ends as soon as a call was shorter: then the pieces are small enough.
        """
        block, hidden = inputs[-1]
        while block < last:
            hop, hidden = await self._call(
                partial(self.router.forward, block, last, samples),
                "forward",
                samples,
                lambda hop, hidden=hidden: Forward(hop.first, hop.stop, samples, hidden),  # type: ignore[misc]
            )
            block = hop.stop
            if block < last:
                inputs.append((block, hidden))
                if shorter_than is not None:
                    break
        return hidden

    async def _can_go_back(self, first: int, stop: int) -> bool:
        """Whether a server holds all of these blocks; waits while some block has no server at all."""
        while True:
            if self.router.another(first, stop, ()) is not None:
                return True
            if not any(first <= block < stop for block in self.router.uncovered(self._plan.blocks)):
                return False
            await asyncio.sleep(WAIT)

    async def _back(self, first: int, stop: int, number: int, samples: int, hidden: bytes, gradient: bytes) -> bytes:
        hop, found = await self._call(
            partial(self.router.backward, first, stop, samples),
            "backward",
            samples,
            lambda hop: Backward(hop.first, hop.stop, samples, number, hidden, gradient),
        )
        self._note(hop.peer).counted.append((number, first, stop))
        return found

    # ---- calls ----

    async def _call(
        self,
        pick: Callable[[Seconds], Hop | None],
        direction: Direction,
        samples: int,
        request: Callable[[Hop], Forward | Backward],
    ) -> tuple[Hop, bytes]:
        """Ask until somebody answers: the one that is expected to be soonest, then others."""
        refusals = 0
        while True:
            now = self._clock.monotonic()
            hop = pick(now)
            if hop is None:
                await asyncio.sleep(WAIT)
                continue
            call = self.router.begin(hop, direction, samples, now)
            try:
                message = request(hop)
                found = await self._asked(call, message)
                self._maybe_check(hop, message, found)
                return hop, found
            except PeerRefused as refusal:
                refusals += refusal.code == "not finite"
                if refusals >= MOST_REFUSALS:
                    raise NotComputable("several servers could not compute it in finite numbers") from None
            except (PeerError, NetworkDown):
                if isinstance(message, Backward):  # the server may have added it up
                    self._note(hop.peer).dropped.append((message.number, hop.first, hop.stop))
            finally:
                self.router.dropped(call)

    async def _asked(self, call: CallUnderWay, message: Forward | Backward) -> bytes:
        """The answer of one server. What it did is noted in the router; any failure is raised again."""
        peer, now = call.hop.peer, self._clock.monotonic()
        try:
            answer = await self._send(peer, message, self.router.patience(call, now))
            values = decode_tensor(answer.tensor, self._plan.shape(call.samples))
            if not values.any():
                raise ValueError("an answer of zeros")
        except PeerRefused as refusal:
            if refusal.code == "busy":
                self.counts.busy += 1
                self.router.busy(call, self._clock.monotonic())
            else:
                self.router.failed(call, self._clock.monotonic())
            raise
        except ValueError as fault:
            self._services.fault(peer, f"pipeline: {fault}")
            self.router.failed(call, self._clock.monotonic())
            raise PeerMisbehaved(str(fault)) from None
        except PeerError:
            self.counts.repeated += 1
            self.router.failed(call, self._clock.monotonic())
            raise
        except NetworkDown:
            await asyncio.sleep(LOOK_EVERY)
            raise
        self.router.answered(call, self._clock.monotonic())
        return answer.tensor

    async def _send(self, peer: str, message: Forward | Backward, timeout: Seconds) -> TensorIs:
        if peer == self._me and self._local is not None:
            if isinstance(message, Forward):
                return await self._local.forward(self._me, message)
            return await self._local.backward(self._me, message)
        return await self._context.calls.ask(PeerId(peer), message, TensorIs, timeout)

    # ---- settling ----

    def _note(self, peer: str) -> _Unsettled:
        return self._unsettled.setdefault(peer, _Unsettled())

    async def _keep_settling(self) -> None:
        """Say to servers which of their gradients count, again and again until they know."""
        while True:
            await asyncio.sleep(SETTLE_EVERY)
            await asyncio.gather(*(self._settle(peer) for peer in list(self._unsettled)))

    async def _settle(self, peer: str) -> None:
        unsettled = self._unsettled[peer]
        counted, dropped = unsettled.counted[:MAX_SETTLED], unsettled.dropped[:MAX_SETTLED]
        message = Settle(tuple(counted), tuple(dropped))
        try:
            if peer == self._me and self._local is not None:
                answer = await self._local.settle(self._me, message)
            else:
                answer = await self._context.calls.ask(PeerId(peer), message, SettleDone, SETTLE_TIMEOUT)
        except PeerError:
            if self._services.table.get(PeerId(peer)) is None or len(unsettled.dropped) > MAX_SETTLED:
                del self._unsettled[peer]  # it is gone, with all that it had added up
            return
        except NetworkDown:
            return
        self.counts.late += answer.late
        del unsettled.counted[: len(counted)], unsettled.dropped[: len(dropped)]
        if not unsettled.counted and not unsettled.dropped:
            del self._unsettled[peer]

    # ---- checks ----

    def _maybe_check(self, hop: Hop, message: Forward | Backward, found: bytes) -> None:
        """Now and then another server should compute the same."""
        if self._rng.random() < self._options.check:
            self._to_check.append((hop, message, found))

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            while self._to_check:
                await self._check(*self._to_check.popleft())

    async def _check(self, hop: Hop, message: Forward | Backward, found: bytes) -> None:
        """Two that agree are right. Where two differ a third decides; without one nobody is blamed."""
        shape = self._plan.shape(message.samples)
        different = DIFFERENT["forward" if isinstance(message, Forward) else "backward"]
        answers: dict[str, Floats] = {hop.peer: decode_tensor(found, shape)}
        while len(answers) < 3:
            other = self.router.another(hop.first, hop.stop, answers)
            if other is None:
                return
            try:
                answer = await self._send(other.peer, _uncounted(message), SETTLE_TIMEOUT)
                answers[other.peer] = decode_tensor(answer.tensor, shape)
            except (PeerError, NetworkDown, ValueError):
                return
            if len(answers) == 2 and distance(*answers.values()) < different:
                self.counts.checked += 1
                return
        self.counts.checked += 1
        for peer, values in answers.items():
            others = [other for name, other in answers.items() if name != peer]
            if distance(*others) < different <= min(distance(values, other) for other in others):
                self._blame(peer)

    def _blame(self, peer: str) -> None:
        """A server's answer differs from those of two others."""
        if peer == self._me:
            return
        self.counts.liars += 1
        self._distrusted[peer] = self._clock.monotonic() + DISTRUST
        self.router.exclude(peer)
        self._services.fault(peer, "pipeline: its answer differs from that of two others")
        name = self._services.table.name_of(PeerId(peer))
        self._services.events.say("pipeline", f"{name} answers wrong; it is left out for a while", warning=True)

    # ---- evaluation ----

    async def _keep_evaluating(self) -> None:
        while True:
            await asyncio.sleep(EVALUATE_EVERY)
            if not self.waiting_for:
                await self._evaluate()

    async def _evaluate(self) -> None:
        """The loss on some test data, which go through the servers too."""
        total, count, size = 0.0, 0, self._plan.micro_batch
        rows = torch.linspace(0, len(self._test) - 1, min(len(self._test), TESTED * size)).long()
        for start in range(0, len(rows), size):
            batch = self._test.rows(rows[start : start + size])
            samples = length(batch)
            try:
                hidden = await self._compute(partial(self._entered, batch))
                hidden = await self._forward_to(self._plan.blocks, [(0, hidden)], samples)
            except NotComputable:
                return
            values = decode_tensor(hidden, self._plan.shape(samples))
            total += await self._compute(partial(self._held.loss, values, batch))
            count += samples
        self.counts.test_loss = total / count if count else None


def _written(gradient: Floats, bits: int) -> bytes:
    try:
        return encode_tensor(gradient, bits)
    except ValueError as error:
        raise NotComputable(str(error)) from None


def _uncounted(message: Forward | Backward) -> Forward | Backward:
    """The same question, without adding anything up."""
    if isinstance(message, Forward):
        return message
    return Backward(message.first, message.stop, message.samples, 0, message.hidden, message.gradient)
