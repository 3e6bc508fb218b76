"""Owns queues: takes items in, applies them by priority, renews leases, takes queues over and hands them on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...wire.errors import PeerMisbehaved, PeerRefused
from ...wire.ids import PeerId
from ...wire.types import Seconds
from ..leases.keeper import LOOK_EVERY
from ..leases.lease import MAX_LEAP, Lease, rank
from ..leases.messages import LeaseTaken, OfferLease
from ..leases.watch import turn_order
from .allocation import QueueLoad, allocate
from .items import Item, Patience
from .messages import Push, Pushed
from .model import QueueModel
from .priority import pick
from .state import QueuesState
from .syncing import Syncer
from .waiting import SLICE, Signal

EVALUATE_EVERY: Seconds = 10.0
LEAST_WORK = 0.1  # items a second that an unused queue counts as


class Owner:
    """The three loops of an owner: `apply` items, `keep_leases`, and `look_after` owned models and their place."""

    def __init__(self, state: QueuesState, syncer: Syncer) -> None:
        self.applied = 0  # items that this node applied
        self._state = state
        self._syncer = syncer
        self._picks = 0
        self._waiting: list[str] = []  # queues by when they were last applied, the one that waited longest first
        self._verdicts: dict[str, str] = {}  # who should own each queue, as decided the last time
        self._patience: dict[str, Patience] = {}  # by producer
        self._arrived = Signal()

    # ---- taking items in ----

    async def answer_push(self, peer: PeerId, request: Push) -> Pushed:
        """Items of another node. PeerRefused by who is not the owner in that term, PeerMisbehaved for bad items."""
        state = self._state
        model = state.models.get(request.queue)
        if model is None:
            raise PeerRefused("unknown queue", "there is no such queue here")
        lease = model.watch.lease
        if lease is None or not model.watch.mine or lease.term != request.term:
            if request.term > MAX_LEAP + (0 if lease is None else lease.term):
                raise PeerMisbehaved("the push is for a term that nobody can have reached")
            raise PeerRefused("not owner", "this node does not own the queue in that term")
        wrong = await state.services.seams.background(partial(model.check, request.items, model.log.weights.copy()))
        if wrong:
            raise PeerMisbehaved(f"queue {model.name}: {wrong}")
        before = model.inbox.arrived
        answer = self.receive(model, peer, request.items)
        if model.inbox.arrived == before and self._patience_with(peer).useless(state.now):
            raise PeerMisbehaved(f"queue {model.name}: it pushes the same again and again")
        return answer

    def _patience_with(self, producer: str) -> Patience:
        if producer not in self._patience:
            members = set(self._state.members())
            self._patience = {peer: kept for peer, kept in self._patience.items() if peer in members}
            self._patience[producer] = Patience(self._state.now)
        return self._patience[producer]

    def receive(self, model: QueueModel, producer: str, items: Sequence[Item]) -> Pushed:
        """Put items into a queue; PeerRefused when this node does not own it."""
        if not model.watch.mine:
            raise PeerRefused("not owner", "another node owns this queue")
        latest, before = model.log.applied.get(producer, 0), model.inbox.arrived
        for item in items:
            received = model.inbox.put(producer, item, model.log.applied.get(producer, 0), self._state.now)
            if received in ("full", "early"):
                break
            latest = max(latest, item.seq)
        model.arrived(model.inbox.arrived - before, self._state.now)
        self._arrived.give()
        waiting = self._state.models.values() if self._state.settings.common else (model,)
        return Pushed(latest, sum(len(each.inbox) for each in waiting) < model.inbox.capacity)

    # ---- applying ----

    async def apply(self) -> None:
        while True:
            model = self.choose()
            if model is None:
                await self._arrived.wait()
            else:
                await self._apply_to(model)

    def choose(self) -> QueueModel | None:
        """The owned queue whose items are applied next, by priority; None where nothing waits."""
        state = self._state
        self._waiting += [name for name in state.models if name not in self._waiting]
        there = {
            model.name: model
            for model in state.models.values()
            if len(model.inbox) and not state.paused(model.name) and state.works(model)
        }
        if not there:
            return None
        if state.settings.common:
            return min(there.values(), key=lambda model: model.inbox.oldest)
        equal = not state.settings.priority
        scores = {name: 0.0 if equal else state.score(model).total for name, model in there.items()}
        chosen = pick(scores, [name for name in self._waiting if name in there], self._picks)
        self._picks += 1
        self._waiting.remove(chosen)
        self._waiting.append(chosen)
        return there[chosen]

    async def _apply_to(self, model: QueueModel) -> None:
        """One step of a queue's log, from the items that have waited longest."""
        state, log = self._state, model.log
        taken = model.inbox.take(1 if state.settings.common else state.settings.batch, log.applied)
        if not taken:
            return
        combine = partial(model.combine, taken, log.weights.copy(), log.items, log.producers())
        delta, payload = await state.services.seams.background(combine)
        lease = model.watch.lease
        if lease is None or not state.works(model) or not log.allows(rank(lease)):
            return  # the queue was lost meanwhile; whoever made the items pushes them to the next owner
        self._begin_term(model, lease)
        items = [(producer, item.seq) for producer, item in taken]
        try:
            log.add([log.make(state.me, rank(lease), items, delta, payload)])
        except ValueError as problem:  # the log has changed meanwhile; the items come again
            state.say(f"{model.name}: a step was given up: {problem}")
            return
        self.applied += len(items)
        state.settle(model)

    def _begin_term(self, model: QueueModel, lease: Lease) -> None:
        if model.log.term < lease.term:  # an empty step cuts off whoever owned it before
            model.log.add([model.log.make(self._state.me, rank(lease))])

    # ---- leases ----

    async def keep_leases(self) -> None:
        """Renew what is owned, and take over what has no owner."""
        state = self._state
        await self._syncer.wait_for_first(state.settings.lease)
        while True:
            for model in list(state.models.values()):
                watch = model.watch
                outdone = watch.mine and not model.log.allows(rank(watch.lease))  # it can make no step in its term
                distrusted = not watch.mine and state.distrusts(model.owner)
                await state.keeper(model).look(state.members_with(model), outdone, distrusted)
                if watch.lease is not None and state.works(model):
                    self._begin_term(model, watch.lease)
            await asyncio.sleep(LOOK_EVERY)

    async def give(self, model: QueueModel, to: str) -> None:
        """Hand a queue over."""
        await self._state.keeper(model).give(to)

    async def give_all(self) -> None:
        """Before leaving: hand every owned queue over, so that nobody has to wait until it is taken over."""
        for model in list(self._state.models.values()):
            members = self._state.members_with(model)
            if model.watch.mine and members:
                await self.give(model, turn_order(model.name, members)[0])

    async def answer_offer(self, peer: PeerId, request: OfferLease) -> LeaseTaken:
        """Accept a queue that its owner hands over."""
        state = self._state
        model = state.models.get(request.lease.name)
        if model is None:
            raise PeerRefused("unknown queue", "there is no such queue here")
        return state.keeper(model).accept(peer, request.lease)

    # ---- now and then ----

    async def look_after(self) -> None:
        """Evaluate the owned models, and look whether queues should move."""
        state = self._state
        evaluated = allocated = state.now
        while True:
            await asyncio.sleep(SLICE)
            if state.now - evaluated >= EVALUATE_EVERY:
                evaluated = state.now
                for model in [one for one in state.models.values() if state.works(one)]:
                    model.note_evaluation(await state.services.seams.compute(partial(model.evaluate, model.shared())))
            if state.now - allocated >= state.settings.reallocate and not state.settings.fixed:
                allocated = state.now
                await self._reallocate()

    async def _reallocate(self) -> None:
        """Hand over each owned queue that should be another's, if it was so the last time too."""
        state, announcements = self._state, self._state.announcements()
        queues: dict[str, QueueLoad] = {}
        for model in state.models.values():
            facts = model.facts(state.idle, state.now)
            work = (LEAST_WORK + (0.0 if facts is None else facts.arrivals)) * len(model.log.weights)
            able = {member for member, one in announcements.items() if one.models is not None and one.has(model.name)}
            wishes = sorted(member for member in able if model.name in announcements[member].wanted)
            queues[model.name] = QueueLoad(work, model.owner, able, wishes[0] if wishes else "")
        wanted = allocate(queues, {member: one.load for member, one in announcements.items()})
        for name, to in wanted.items():
            model = state.models[name]
            if state.works(model) and to != state.me.peer_id and self._verdicts.get(name) == to:
                await self.give(model, to)
        self._verdicts = wanted
