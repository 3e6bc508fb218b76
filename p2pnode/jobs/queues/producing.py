"""Trains models and sends what came of it: a model is chosen, trained for some steps, and an item goes to its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...training.slowdown import rest_after
from ...wire.errors import Diverged, LocalProblem, NetworkDown, PeerError
from ...wire.ids import PeerId
from ...wire.types import Seconds
from ..leases.lease import lease_id
from .items import Item
from .messages import MAX_PUSH_BYTES, MAX_PUSHED, Push, Pushed
from .model import QueueModel
from .owning import Owner
from .priority import CONVERGED, Turns
from .state import QueuesState
from .syncing import Syncer
from .waiting import SLICE, Signal

RESEND_AFTER: Seconds = 10.0  # that an item has been at the owner without being applied


class Producer:
    """The two loops of a producer: `train` makes items, `push` sends them until they are applied."""

    def __init__(self, state: QueuesState, owner: Owner, syncer: Syncer, full_speed: bool) -> None:
        self.trained = 0  # items that this node made
        self.local_steps = 0
        self.slowed = ""  # why it rests between items; "" at full speed
        self._state = state
        self._owner = owner
        self._syncer = syncer
        self._full_speed = full_speed
        rng = state.services.seams.rng
        self._turns = Turns({name: rng.random() for name in state.models})  # so that nodes spread over the models
        self._chosen = ""  # the model of this turn
        self._turn_ends: Seconds = 0.0
        self._made = Signal()
        self._rests = 0

    # ---- training ----

    async def train(self) -> None:
        state = self._state
        while True:
            await state.services.limiter.free()
            model = self.choose()
            if model is None:
                await asyncio.sleep(SLICE)
                continue
            begun_at = state.now
            if await self._make_item(model):
                self._made.give()
            await self._rest(state.now - begun_at)

    async def _make_item(self, model: QueueModel) -> bool:
        """Train a model for a while; returns whether an item came of it that may be sent."""
        state = self._state
        begun = model.shared()
        try:
            result, payload = await state.services.seams.compute(partial(model.train, begun), state.settings.steps)
        except Diverged as problem:
            state.services.events.say("diverged", f"{model.name}: {problem}", warning=True)
            await asyncio.sleep(SLICE)
            return False
        model.loss = result.loss
        self.local_steps += result.steps
        item = model.outbox.add(begun.items, result.steps, result.samples, result.loss, payload)
        self.trained += 1
        return await self._put_on_disk(model, item)

    async def _put_on_disk(self, model: QueueModel, item: Item) -> bool:
        """Without this an item must not be sent: after a crash its number would be used again."""
        state = self._state
        try:
            await state.services.seams.disk(partial(state.files.note_item, model.name, item))
        except LocalProblem as problem:
            state.services.events.say("disk", f"an item of {model.name} waits for the disk: {problem}", warning=True)
            await asyncio.sleep(SLICE)
            return False
        return True

    def choose(self) -> QueueModel | None:
        """The model that this node trains next: each gets turns of some seconds, in proportion to its need."""
        state = self._state
        wanted = {model.name: model for model in state.models.values() if self._wants_items(model)}
        wanted = {name: model for name, model in wanted.items() if not state.good_enough(model)} or wanted
        if not wanted:
            return None
        if self._chosen not in wanted or state.now >= self._turn_ends:
            equal = not state.settings.priority
            self._chosen = self._turns.next({name: 1.0 if equal else state.need(one) for name, one in wanted.items()})
            self._turn_ends = state.now + state.settings.turn
        return wanted[self._chosen]

    def _wants_items(self, model: QueueModel) -> bool:
        """Whether an item is of use now: the queue has an owner and room, and most items before it are applied."""
        going = bool(model.owner) and model.room and not self._state.paused(model.name)
        return going and not model.outbox.full(model.done) and model.trainer.samples > 0

    async def _rest(self, item_seconds: Seconds) -> None:
        """Rest after an item once no model needs it any more, longer each time; the queues go on being synced."""
        state = self._state
        going = [model for model in state.models.values() if not state.paused(model.name)]
        done = bool(going) and all(state.good_enough(model) or state.converged(model) for model in going)
        if not done or self._full_speed:
            if self.slowed:
                state.services.events.say("slowed", "at full speed again: a model needs training")
            self.slowed, self._rests = "", 0
            return
        if not self.slowed:
            self.slowed = f"each model has reached its target, or did not get better in {CONVERGED:.0f} passes"
            state.services.events.say("slowed", self.slowed)
        pause = rest_after(item_seconds, self._rests)
        self._rests += 1
        await asyncio.sleep(pause)

    # ---- pushing ----

    async def push(self) -> None:
        state = self._state
        while True:
            for model in list(state.models.values()):
                if model.owner and not state.paused(model.name) and model.outbox.unapplied(model.done):
                    await self._push_items(model)
            await self._made.wait()

    async def _push_items(self, model: QueueModel) -> None:
        state = self._state
        lease, now = model.watch.lease, state.now
        assert lease is not None
        id = lease_id(lease)
        sent_to, seq, at = model.sent
        done = seq if sent_to == id and now - at < RESEND_AFTER else model.done
        items = bounded_items([item for item in model.outbox.unapplied(model.done) if item.seq > done])
        if not items:
            return
        try:
            if lease.owner == state.me.peer_id:
                answer = self._owner.receive(model, lease.owner, items)
            else:
                push = Push(model.name, lease.term, items)
                answer = await state.context.calls.ask(PeerId(lease.owner), push, Pushed)
        except (PeerError, NetworkDown):
            return  # not the owner any more, or not there: leases tell who is next
        if lease.owner != state.me.peer_id:
            await self._syncer.ask(PeerId(lease.owner), {model.name})  # the next item should begin from fresh weights
        model.room = answer.room
        model.sent = (id, max(model.done, min(answer.seq, items[-1].seq)), now)


def bounded_items(items: Sequence[Item]) -> tuple[Item, ...]:
    """As many of the first items as one message holds, at least one."""
    found: list[Item] = []
    size = 0
    for item in items[:MAX_PUSHED]:
        size += len(item.payload)
        if found and size > MAX_PUSH_BYTES:
            break
        found.append(item)
    return tuple(found)
