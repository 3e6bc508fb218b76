"""A server of a pipeline: holds a span of blocks, answers calls of drivers, and steps when enough gradients are in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ...compression.weights import Floats
from ...wire.errors import PeerMisbehaved, PeerRefused
from ...wire.ids import PeerId
from ...wire.types import Seconds
from ..contract import JobContext
from .local_blocks import LocalBlocks
from .messages import Backward, Forward, Settle, SettleDone, TensorIs, TicketNumbers
from .plan import PipelinePlan
from .routing import MOST_UNDER_WAY
from .shared_parts import SharedParts
from .spans import NOTHING, BlockSpan, ServerFacts
from .tensors import decode_tensor, encode_tensor
from .tickets import Added, Ticket, TicketLedger

MOST_WAITING = 32  # calls of all drivers together
LOOK_EVERY: Seconds = 1.0  # for gradients that nobody confirms
FORWARD_SHARE, BACKWARD_SHARE = 1 / 3, 1.0  # of a local step; backward computes forward again
SMOOTHING = 0.8

T = TypeVar("T")


class KeptGradient(NamedTuple):
    """What it takes to take a gradient out again, as it came."""

    samples: int
    hidden: bytes
    gradient: bytes


class SpanServer:
    """The blocks that this node serves."""

    def __init__(self, context: JobContext, plan: PipelinePlan, parts: SharedParts, capacity: int) -> None:
        self.span: BlockSpan = NOTHING
        self.capacity = capacity
        self.forwards = 0
        self.backwards = 0
        self.taken_out = 0  # gradients that were not confirmed
        self.refused_busy = 0
        self.ledger: TicketLedger[KeptGradient] = TicketLedger()
        self._context = context
        self._plan = plan
        self._parts = parts
        self._held: LocalBlocks = parts.held
        self._clock = context.services.seams.clock
        self._declared = context.services.seams.speed
        self._seconds: Seconds | None = None  # of a sample through a block, forward and backward
        self._waiting = Counter[str]()
        self._under_way: set[Ticket] = set()

    @property
    def waiting(self) -> int:
        """Calls that are here and not answered yet."""
        return self._waiting.total()

    @property
    def speed(self) -> float:
        """Samples through one block, forward and backward, a second."""
        if self._declared:
            return self._declared * self._step_samples * self._plan.blocks / (FORWARD_SHARE + BACKWARD_SHARE)
        return 1.0 / self._seconds if self._seconds else 1.0

    @property
    def _step_samples(self) -> int:
        return self._held.outline.task.batch_size

    def facts(self, drives: bool) -> ServerFacts:
        """What this node announces."""
        return ServerFacts(self.span, self.capacity, self.speed, self.waiting, drives)

    def steps_of(self, block: int) -> int | None:
        """Steps of a block's optimizer here; None for a block that is not here."""
        held = self._held.parts.get(block)
        return None if held is None else held.steps

    async def hold(self, span: BlockSpan, group: asyncio.TaskGroup) -> str:
        """Hold these blocks and no others; returns where they were taken from, in words."""
        old = [number for number in self._parts.open if number >= 0 and not span.first <= number < span.stop]
        before = self.span
        self.span = BlockSpan(max(span.first, before.first), min(span.stop, before.stop))
        if self.span.length <= 0:
            self.span = NOTHING
        await self._parts.close(old)
        for number in old:
            await self._compute(partial(self.ledger.forget, number))
        begun = await self._parts.get(range(span.first, span.stop), group)
        if self._seconds is None and not self._declared:
            await self._compute(partial(self._probe, span))
        self.span = span
        found = Counter(begun.values())
        return ", ".join(f"{count} {how}" for how, count in sorted(found.items()))

    def _probe(self, span: BlockSpan) -> None:
        """Measure how fast this machine is, before anybody asks for something."""
        shape = self._plan.shape(self._plan.micro_batch)
        hidden = np.random.default_rng(0).standard_normal(shape, np.float32)
        one = BlockSpan(span.first, span.first + 1)
        self._held.forward(one, hidden)  # the first time takes longer
        begun = self._clock.monotonic()
        self._held.backward(one, hidden, np.zeros_like(hidden), counted=False)
        self._measure((self._clock.monotonic() - begun) * 4 / 3, self._plan.micro_batch)

    def _measure(self, seconds: Seconds, units: int) -> None:
        each = max(1e-9, seconds / units)
        self._seconds = each if self._seconds is None else SMOOTHING * self._seconds + (1 - SMOOTHING) * each

    # ---- calls ----

    async def forward(self, peer: PeerId, request: Forward) -> TensorIs:
        """What the blocks make of hidden states; PeerRefused when they are not here, or there is too much to do."""
        span = self._asked(request.first, request.stop)

        def work() -> TensorIs:
            hidden = self._read(request.hidden, request.samples)
            return TensorIs(self._written(self._held.forward(span, hidden)))

        answer = await self._in_turn(peer, work, self._cost(span, request.samples, FORWARD_SHARE))
        self.forwards += 1
        return answer

    async def backward(self, peer: PeerId, request: Backward) -> TensorIs:
        """The gradient before the blocks. That of the parameters is added up, unless this ticket's was before."""
        span = self._asked(request.first, request.stop)
        ticket = self.ticket(peer, request)
        counted = request.number > 0 and ticket not in self._under_way

        def work() -> TensorIs:
            return self._work_backward(span, ticket, request, counted and not self.ledger.knows(ticket))

        if counted:
            self._under_way.add(ticket)
        try:
            answer = await self._in_turn(peer, work, self._cost(span, request.samples, BACKWARD_SHARE))
        finally:
            if counted:
                self._under_way.discard(ticket)
        self.backwards += 1
        return answer

    def ticket(self, peer: str, request: Backward) -> Ticket:
        """Of a gradient that a driver asks for."""
        return Ticket(peer, request.number, request.first, request.stop)

    def _work_backward(self, span: BlockSpan, ticket: Ticket, request: Backward, counted: bool) -> TensorIs:
        hidden = self._read(request.hidden, request.samples)
        gradient = self._read(request.gradient, request.samples)
        begun = self._clock.monotonic()
        found = self._written(self._held.backward(span, hidden, gradient, counted))
        self._measure((self._clock.monotonic() - begun) * 4 / 3, request.samples * span.length)
        if counted:
            kept = KeptGradient(request.samples, request.hidden, request.gradient)
            self.ledger.add(ticket, request.samples, kept, self._clock.monotonic())
            self._step_where_ready()
        return TensorIs(found)

    async def settle(self, peer: PeerId, request: Settle) -> SettleDone:
        """A driver says which of its gradients count."""
        late = await self._compute(partial(self._work_settle, peer, request.counted, request.dropped))
        return SettleDone(late)

    def _work_settle(self, peer: str, counted: Sequence[TicketNumbers], dropped: Sequence[TicketNumbers]) -> int:
        """Returns how many were taken out before they were confirmed."""
        late = sum(self.ledger.was_taken_out(Ticket(peer, *one)) for one in counted)
        self.ledger.confirm(peer, counted)
        for added in self.ledger.wanted_out(peer, dropped):
            self._take_out(added)
        self._step_where_ready()
        return late

    def _asked(self, first: int, stop: int) -> BlockSpan:
        if not self.span.covers(first, stop):
            raise PeerRefused("not here", "this node does not hold these blocks")
        return BlockSpan(first, stop)

    async def _in_turn(self, peer: str, work: Callable[[], T], steps: float) -> T:
        """The result of some work, unless too much waits already: busy is no failure."""
        if self._waiting[peer] >= MOST_UNDER_WAY or self.waiting >= MOST_WAITING:
            self.refused_busy += 1
            raise PeerRefused("busy", "too many calls wait here; ask another server")
        self._waiting[peer] += 1
        try:
            await self._context.services.limiter.free()
            return await self._context.services.seams.compute(work, steps)
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]

    def _cost(self, span: BlockSpan, samples: int, share: float) -> float:
        """What a call takes, in local steps, for simulations."""
        return share * samples / self._step_samples * span.length / self._plan.blocks

    def _read(self, data: bytes, samples: int) -> Floats:
        if samples > self._plan.micro_batch:
            raise PeerMisbehaved(f"a micro-batch of {samples}, {self._plan.micro_batch} allowed")
        try:
            return decode_tensor(data, self._plan.shape(samples))
        except ValueError as error:
            raise PeerMisbehaved(str(error)) from None

    def _written(self, values: Floats) -> bytes:
        try:
            return encode_tensor(values, self._plan.bits)
        except ValueError as error:
            raise PeerRefused("not finite", str(error)) from None

    async def _compute(self, work: Callable[[], T]) -> T:
        return await self._context.services.seams.compute(work)

    # ---- steps; all in the compute thread ----

    def _target(self, number: int) -> int:
        """Samples for a step: all servers of a block together should see a batch between two steps."""
        return max(self._plan.micro_batch, self._plan.batch // self._parts.open[number].holders)

    def _step_where_ready(self) -> None:
        for number in range(self.span.first, self.span.stop):
            held = self._held.parts.get(number)
            part = self._parts.open.get(number)
            if held is None or part is None:
                continue
            if not self.ledger.closed(number) and self.ledger.in_window(number) >= self._target(number):
                self.ledger.close(number)
                held.close()
            if self.ledger.ready(number):
                samples = self.ledger.take(number)
                if held.step(samples, part.rate * self._held.outline.task.rate(held.steps)):
                    part.samples += samples

    def _take_out(self, added: Added[KeptGradient]) -> None:
        """Subtract a gradient that does not count, by computing it once more."""
        ticket, kept = added.ticket, added.payload
        blocks = [number for number in range(ticket.first, ticket.stop) if number in added.windows]
        span = BlockSpan(ticket.first, ticket.stop)
        if blocks and all(number in self._held.parts for number in range(span.first, span.stop)):
            closed = [number for number in blocks if self.ledger.is_closed(added, number)]
            hidden, gradient = self._read(kept.hidden, kept.samples), self._read(kept.gradient, kept.samples)
            self._held.take_out(span, hidden, gradient, closed)
        self.ledger.taken_out(added)
        self.taken_out += 1

    def _take_out_overdue(self) -> None:
        for added in self.ledger.overdue(self._clock.monotonic()):
            self._take_out(added)
        self._step_where_ready()

    async def keep_looking(self) -> None:
        """Take out what nobody confirms, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self._compute(self._take_out_overdue)
