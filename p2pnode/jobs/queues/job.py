"""The queues job of one node: it trains the models that need it most, and applies what comes to the queues it owns.

train     choose a model → local steps → an item (on disk first) → push to the owner of its queue
apply     of the owned queues with items, the one of highest priority → one step of its log
sync      tell members what this node knows of leases and logs, and learn what they know
leases    renew what is owned, take over what has no owner, hand over what another should own
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...compression.weights import from_units
from ...network.base import MemorySink, Payload, StreamLimits
from ...runtime.routes import Routes
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import (
    Diverged,
    LocalProblem,
    NetworkDown,
    PeerError,
    PeerMisbehaved,
    PeerRefused,
    UsageError,
)
from ...wire.ids import PeerId, short
from ...wire.messages import JobAnnouncement
from ...wire.status import JobStatus
from ...wire.types import Seconds
from ..contract import Job, JobContext, JobPace
from ..leases.lease import Lease, Renewal, lease_id, rank
from ..leases.watch import turn_order
from ..train.export import ExportSource, write_model
from .allocation import NodeLoad, allocate
from .announcing import announced, read_announced
from .items import Item
from .log import NotConnected, Step, decode_step
from .messages import (
    MAX_NEWS_BYTES,
    MAX_PUSH_BYTES,
    MAX_PUSHED,
    GetQueue,
    LeaseTaken,
    OfferLease,
    Push,
    Pushed,
    QueueNews,
    QueueView,
    Sync,
    SyncIs,
)
from .model import QueueModel
from .plan import QueuesPlan
from .priority import Score, Turns, pick, score
from .saving import QueueFiles
from .status import queues_status

SLICE: Seconds = 0.5  # how long a loop with nothing to do waits before it looks again
SYNC_EVERY: Seconds = 1.0
EVALUATE_EVERY: Seconds = 10.0
SAVE_EVERY: Seconds = 20.0
LONELY = 10.0  # times the lease that a node without the others waits before it goes on by itself
RESEND_AFTER: Seconds = 10.0  # that an item has been at the owner without being applied
_OVERHEAD = 4 << 20


class QueuesJob(Job):
    """Several models that the members of a run train at once."""

    def __init__(
        self, context: JobContext, plan: QueuesPlan, models: dict[str, QueueModel], preferred: Sequence[str]
    ) -> None:
        super().__init__(context)
        self.models = models
        self.plan = plan
        self.applied = 0  # items that this node applied
        self.trained = 0  # items that this node made
        self.local_steps = 0
        self._preferred = preferred
        self._services = context.services
        self._settings = plan.settings
        self._me = context.services.identity
        self._clock = context.services.seams.clock
        self._files = QueueFiles(context.services.seams.storage, context.folder)
        self._picks = 0
        self._waiting = list(models)  # the queue that waited longest for being applied is first
        self._turns = Turns(list(models))
        self._verdicts: dict[str, str] = {}  # who should own each queue, as decided the last time
        self._synced = asyncio.Event()  # a member has told this node what it knows, since the start
        founded = context.founder == self._me.peer_id
        self._accompanied: Seconds | None = None if founded else self._now  # when it last knew of another member
        self._arrived = asyncio.Event()  # items came to a queue of this node
        self._made = asyncio.Event()  # this node made an item
        self.routes = Routes(
            {Sync: self._answer_sync, Push: self._answer_push, OfferLease: self._answer_offer}, {GetQueue: self._stream}
        )

    # ---- life ----

    async def run(self) -> str:
        async with asyncio.TaskGroup() as group:
            for loop in (self._train, self._apply, self._push, self._sync, self._keep_leases, self._look_after):
                group.create_task(loop())
        raise AssertionError("the loops do not end")

    def resume(self) -> bool:
        """Go on from what this node saved; returns whether there was something."""
        found = self._files.load(self.models.values(), self._now)
        if found:
            self._accompanied = self._now  # others may have gone on: hear them before doing anything
        return found

    async def save(self, limit: Seconds | None = None) -> None:
        try:
            async with asyncio.timeout(limit):
                parts = [self._files.collect(model) for model in self.models.values()]
                await self._services.seams.disk(partial(self._files.write, parts))
        except (LocalProblem, TimeoutError) as problem:
            self._services.events.say("disk", f"progress was not saved: {problem}", warning=True)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving: give the queues to others, so that nobody has to wait until they are taken over."""
        for model in self.models.values():
            members = [peer for peer in self._members() if peer != self._me.peer_id]
            if model.watch.mine and members:
                await self._give(model, turn_order(model.name, members)[0])

    @property
    def _now(self) -> Seconds:
        return self._clock.monotonic()

    def _members(self) -> list[PeerId]:
        return self.context.members()

    def works(self, model: QueueModel) -> bool:
        """Whether this node may act as the owner of a queue now."""
        return model.watch.works(self._now, self._alone())

    def _alone(self) -> bool:
        """Whether there is nobody who could confirm a lease: nobody has come yet, or all have been gone for long."""
        if self._members():
            self._accompanied = self._now
            return False
        return self._accompanied is None or self._now - self._accompanied > LONELY * self._settings.lease

    # ---- training ----

    async def _train(self) -> None:
        while True:
            await self._services.limiter.free()
            model = self._choose_to_train()
            if model is None:
                await asyncio.sleep(SLICE)
                continue
            trained, begun = model.log.items, from_units(model.log.weights)
            work = partial(model.train, begun, model.density())
            try:
                result, payload = await self._services.seams.compute(work, self._settings.steps)
            except Diverged as problem:
                self._services.events.say("diverged", f"{model.name}: {problem}", warning=True)
                await asyncio.sleep(SLICE)
                continue
            model.loss = result.loss
            self.local_steps += result.steps
            item = model.outbox.add(trained, result.steps, result.samples, result.loss, payload)
            self.trained += 1
            if await self._keep_item(model, item):
                self._made.set()

    def _wants_items(self, model: QueueModel) -> bool:
        """Whether an item for this model is of use now: the owner has room, and has applied most of those before."""
        return bool(model.owner) and model.room and not model.outbox.full(model.done) and model.trainer.samples > 0

    async def _keep_item(self, model: QueueModel, item: Item) -> bool:
        """Put an item on disk, without which it must not be sent: after a crash its number would be used again."""
        try:
            await self._services.seams.disk(partial(self._files.note_item, model.name, item))
        except LocalProblem as problem:
            self._services.events.say("disk", f"an item of {model.name} waits for the disk: {problem}", warning=True)
            await asyncio.sleep(SLICE)
            return False
        return True

    def _choose_to_train(self) -> QueueModel | None:
        """The model that this node trains next: each gets turns in proportion to its priority."""
        wanted = {model.name: model for model in self.models.values() if self._wants_items(model)}
        if not wanted:
            return None
        equal = not self._settings.priority
        chosen = self._turns.next({name: 1.0 if equal else self.need(model) for name, model in wanted.items()})
        return wanted[chosen]

    def _choose_to_apply(self) -> QueueModel | None:
        """The owned queue whose items are applied next, by priority; None where nothing waits."""
        there = {model.name: model for model in self.models.values() if len(model.inbox) and self.works(model)}
        if not there:
            return None
        equal = not self._settings.priority
        scores = {name: 0.0 if equal else self.score(model).total for name, model in there.items()}
        chosen = pick(scores, [name for name in self._waiting if name in there], self._picks)
        self._picks += 1
        self._waiting.remove(chosen)
        self._waiting.append(chosen)
        return there[chosen]

    def score(self, model: QueueModel) -> Score:
        """The priority of a queue."""
        largest = max(len(other.log.weights) for other in self.models.values())
        return score(model.score_facts(self._idle(), self._now), largest, self._settings.weights)

    def need(self, model: QueueModel) -> float:
        """How much a model needs to be trained: its priority, but less for a queue that is full already."""
        found = self.score(model)
        return found.convergence + found.complexity + found.idle - found.length

    def _idle(self) -> float:
        return 1.0 - self.context.compute.busy.share()

    # ---- applying ----

    async def _apply(self) -> None:
        while True:
            model = self._choose_to_apply()
            if model is None:
                await _next(self._arrived)
                continue
            await self._apply_one(model)

    async def _apply_one(self, model: QueueModel) -> None:
        taken, weights, applied = (
            model.inbox.take(self._settings.batch, model.log.applied),
            model.log.weights,
            model.log.items,
        )
        if not taken:
            return
        delta, payload = await self._services.seams.background(
            partial(model.combine, taken, weights.copy(), applied, model.log.producers())
        )
        lease = model.watch.lease
        if lease is None or not self.works(model) or not model.log.allows(rank(lease)):
            return  # the queue was lost meanwhile; whoever made the items pushes them to the next owner
        self._begin_term(model, lease)
        items = [(producer, item.seq) for producer, item in taken]
        try:
            step = model.log.make(self._me, rank(lease), items, delta, payload)
            model.log.add([step])
        except ValueError as problem:  # the log has changed meanwhile; the items come again
            self._services.events.say("queue", f"{model.name}: a step was given up: {problem}")
            return
        self.applied += len(items)
        self._settle(model)

    def _begin_term(self, model: QueueModel, lease: Lease) -> None:
        if model.log.term < lease.term:  # an empty step cuts off whoever owned it before
            model.log.add([model.log.make(self._me, rank(lease))])

    def _settle(self, model: QueueModel) -> None:
        """The log of a queue has changed, here or at a member."""
        known = [peer for peer in self._services.table if peer.announcement.run == self.context.calls.run]
        model.settle(
            [peer.id for peer in known if peer.takes_part(self.name) and not peer.announcement.left], self._now
        )

    # ---- pushing ----

    async def _push(self) -> None:
        while True:
            for model in self.models.values():
                if model.owner and model.outbox.unapplied(model.done):
                    await self._push_items(model)
            await _next(self._made)

    async def _push_items(self, model: QueueModel) -> None:
        lease, now = model.watch.lease, self._now
        assert lease is not None
        id = lease_id(lease)
        sent_to, seq, at = model.sent
        done = seq if sent_to == id and now - at < RESEND_AFTER else model.done
        items = bounded_items([item for item in model.outbox.unapplied(model.done) if item.seq > done])
        if not items:
            return
        try:
            if lease.owner == self._me.peer_id:
                answer = self._receive(model, self._me.peer_id, items)
            else:
                answer = await self.context.calls.ask(PeerId(lease.owner), Push(model.name, items), Pushed)
        except (PeerError, NetworkDown):
            return  # not the owner any more, or not there: leases tell who is next
        if lease.owner != self._me.peer_id:
            await self._sync_with(PeerId(lease.owner), {model.name})  # the next item should begin from fresh weights
        model.room = answer.room
        model.sent = (id, max(model.done, min(answer.seq, items[-1].seq)), now)

    def _receive(self, model: QueueModel, producer: str, items: Sequence[Item]) -> Pushed:
        """Put items into the queue; PeerRefused when this node does not own it."""
        if not model.watch.mine:
            raise PeerRefused("not owner", "another node owns this queue")
        latest = model.log.applied.get(producer, 0)
        before = model.inbox.arrived
        for item in items:
            received = model.inbox.put(producer, item, model.log.applied.get(producer, 0))
            if received in ("full", "early"):
                break
            latest = max(latest, item.seq)
        model.arrived(model.inbox.arrived - before, self._now)
        self._arrived.set()
        return Pushed(latest, len(model.inbox) < model.inbox.capacity)

    def _answer_push(self, peer: PeerId, request: Push) -> Pushed:
        return self._receive(self._asked(request.queue), peer, request.items)

    def _asked(self, queue: str) -> QueueModel:
        if queue not in self.models:
            raise PeerRefused("unknown queue", "there is no such queue in this job")
        return self.models[queue]

    # ---- telling each other ----

    async def _sync(self) -> None:
        while True:
            asked = self._whom_to_ask()
            await asyncio.gather(*(self._sync_with(peer, queues) for peer, queues in asked.items()))
            if self._alone():
                self._synced.set()
            await asyncio.sleep(SYNC_EVERY)

    def _whom_to_ask(self) -> dict[PeerId, set[str]]:
        """Owners about their queues, and one other member about all of them."""
        members = self._members()
        asked: dict[PeerId, set[str]] = {}
        for model in self.models.values():
            if model.owner in members:
                asked.setdefault(PeerId(model.owner), set()).add(model.name)
        if members:
            asked[self._services.seams.rng.choice(members)] = set(self.models)
        return asked

    async def _sync_with(self, peer: PeerId, queues: set[str]) -> None:
        views = tuple(self._view(model) for model in self.models.values() if model.name in queues)
        try:
            answer = await self.context.calls.ask(peer, Sync(views), SyncIs)
        except (PeerError, NetworkDown):
            return
        for news in answer.queues:
            if news.queue not in self.models:
                self._services.fault(peer, "it told news of a queue that does not exist")
                return
            model = self.models[news.queue]
            model.note_head(peer, news.head)
            try:
                self._learn_lease(model, peer, news.lease, news.renewal)
                self._learn_steps(model, [decode_step(data) for data in news.steps])
            except ValueError as problem:
                self._services.fault(peer, f"queue {news.queue}: {problem}")
                return
            if news.facts is not None and not model.watch.mine:
                model.note_facts(news.facts, self._now)
            if news.snapshot:
                await self._take_snapshot(model, peer)
            self._settle(model)
        self._synced.set()

    def _view(self, model: QueueModel) -> QueueView:
        return QueueView(model.name, model.log.positions()[:16], model.watch.lease, model.watch.renewal)

    def _answer_sync(self, peer: PeerId, request: Sync) -> SyncIs:
        room, news = MAX_NEWS_BYTES, []
        for view in request.queues:
            model = self._asked(view.queue)
            try:
                self._learn_lease(model, peer, view.lease, view.renewal)
                model.note_head(peer, view.positions[0].id if view.positions else b"")
            except ValueError as problem:
                raise PeerMisbehaved(f"queue {view.queue}: {problem}") from None
            steps = model.log.after(view.positions, max(0, room)) if room > 0 else []
            ahead = steps is None and model.log.head.index > 0
            room -= sum(map(len, steps or ()))
            watch, facts = model.watch, model.facts(self._idle(), self._now)
            news.append(
                QueueNews(view.queue, model.log.head.id, watch.lease, watch.renewal, facts, tuple(steps or ()), ahead)
            )
        return SyncIs(tuple(news))

    def _learn_lease(self, model: QueueModel, peer: PeerId, lease: Lease | None, renewal: Renewal | None) -> None:
        """What a member knows of a queue's lease; ValueError when that is not valid."""
        if lease is None:
            return
        mine = model.watch.mine
        if model.watch.learn(lease, renewal, self._now):
            if mine:
                model.inbox.clear()
            self._say_owner(model)
        model.watch.confirmed(lease_id(lease), self._now)

    def _learn_steps(self, model: QueueModel, steps: list[Step]) -> None:
        """Take in steps of a queue's log; ValueError when one is invalid."""
        before = model.log.taken_back
        try:
            changed = model.log.add(steps)
        except NotConnected:
            return  # the log has gone on since the question; the next answer fits
        if changed:
            self._settle(model)
        if model.log.taken_back > before:
            count = model.log.taken_back - before
            self._services.events.say("queue", f"{model.name}: took back {count} steps of an owner that was replaced")

    async def _stream(self, peer: PeerId, request: GetQueue) -> Payload:
        return Payload.of(self._asked(request.queue).log.snapshot())

    async def _take_snapshot(self, model: QueueModel, peer: PeerId) -> None:
        sink, limits = MemorySink(), StreamLimits(16 * len(model.log.weights) + _OVERHEAD)
        try:
            await self.context.calls.fetch(peer, GetQueue(model.name), sink, limits)
            if model.log.adopt(sink.content()):
                self._settle(model)
                self._services.events.say("caught up", f"{model.name}: took the weights of {short(peer)}")
        except (PeerError, NetworkDown):
            return
        except ValueError as problem:
            self._services.fault(peer, f"snapshot of queue {model.name}: {problem}")

    # ---- owning ----

    async def _keep_leases(self) -> None:
        await self._first_sync()
        while True:
            for model in self.models.values():
                watch, now = model.watch, self._now
                if watch.stopped or watch.due(now, self._members()) or self._outdone(model):
                    await self._take(model)
                watch.renew(now)
                if watch.lease is not None and self.works(model):
                    self._begin_term(model, watch.lease)
            await asyncio.sleep(SLICE)

    def _outdone(self, model: QueueModel) -> bool:
        """Whether this node owns the queue by a lease under which it can make no step: its term is over."""
        return model.watch.mine and not model.log.allows(rank(model.watch.lease))

    async def _first_sync(self) -> None:
        """Wait until a member has told what it knows, or for as long as a silent swarm would take."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._synced.wait(), self._settings.lease)

    async def _take(self, model: QueueModel) -> None:
        lease = model.watch.take(self._now)
        try:
            await self._services.seams.disk(partial(self._files.note_lease, model.name, lease))
        except LocalProblem as problem:
            self._services.events.say("disk", f"the lease of {model.name} is not on disk: {problem}", warning=True)
        self._say_owner(model)

    def _say_owner(self, model: QueueModel) -> None:
        lease = model.watch.lease
        assert lease is not None
        who = "this node" if model.watch.mine else short(lease.owner)
        self._services.events.say("queue", f"{who} owns the queue {model.name} in term {lease.term}")

    async def _give(self, model: QueueModel, to: str) -> None:
        """Hand a queue over. Should that fail, this node takes it again in a later term."""
        offered = model.watch.offer(to)
        try:
            answer = await self.context.calls.ask(PeerId(to), OfferLease(offered), LeaseTaken)
            self._learn_lease(model, PeerId(to), answer.lease, None)
        except (PeerError, NetworkDown):
            return
        except ValueError as problem:
            self._services.fault(to, f"lease of {model.name}: {problem}")

    def _answer_offer(self, peer: PeerId, request: OfferLease) -> LeaseTaken:
        model = self._asked(request.lease.name)
        try:
            lease = model.watch.accept(request.lease, peer, self._now)
        except ValueError as problem:
            raise PeerRefused("offer", str(problem)) from None
        self._say_owner(model)
        return LeaseTaken(lease)

    # ---- now and then ----

    async def _look_after(self) -> None:
        """Evaluate the owned models, look whether queues should move, and save."""
        evaluated = allocated = saved = self._now
        while True:
            await asyncio.sleep(SLICE)
            now = self._now
            if now - evaluated >= EVALUATE_EVERY:
                evaluated = now
                for model in [one for one in self.models.values() if self.works(one)]:
                    work = partial(model.trainer.evaluate, from_units(model.log.weights))
                    model.note_evaluation(await self._services.seams.compute(work))
            if now - allocated >= self._settings.reallocate and not self._settings.fixed:
                allocated = now
                await self._reallocate()
            if now - saved >= SAVE_EVERY:
                saved = now
                await self.save()

    async def _reallocate(self) -> None:
        """Hand over each owned queue that should be another's, if it was so the last time too."""
        nodes, preferred = self._announcements()
        loads = {}
        for model in self.models.values():
            facts = model.facts(self._idle(), self._now)
            loads[model.name] = (0.1 if facts is None else 0.1 + facts.arrivals) * len(model.log.weights)
        owners = {model.name: model.owner for model in self.models.values()}
        wanted = allocate(loads, owners, nodes, preferred)
        for model in self.models.values():
            to = wanted[model.name]
            if self.works(model) and to != self._me.peer_id and self._verdicts.get(model.name) == to:
                await self._give(model, to)
        self._verdicts = wanted

    def _announcements(self) -> tuple[dict[str, NodeLoad], dict[str, str]]:
        """How fast and how idle each member is, and which queues members want to own whenever they are there."""
        names = list(self.models)
        states: dict[str, bytes] = {self._me.peer_id: self.announcement().state}
        for peer in self._members():
            found = self._services.table.get(peer)
            if found is not None:
                states[peer] = found.announcement.job(self.name).state
        nodes: dict[str, NodeLoad] = {}
        preferred: dict[str, str] = {}
        for member, state in sorted(states.items()):
            nodes[member], wanted = read_announced(state, names)
            preferred |= {queue: member for queue in wanted if queue not in preferred}
        return nodes, preferred

    # ---- for peers and views ----

    @property
    def undone(self) -> int:
        """Steps of owners that were replaced, which this node took back."""
        return sum(model.log.taken_back for model in self.models.values())

    def announcement(self) -> JobAnnouncement:
        speed = max((model.trainer.speed for model in self.models.values()), default=0.0)
        owned = [model.name for model in self.models.values() if model.watch.mine]
        state = announced(list(self.models), owned, self._preferred, speed, self._idle())
        return JobAnnouncement(self.name, state=state)

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """`export` writes one of the models, which `--job JOB/MODEL` names."""
        if request.do != "export":
            return await super().execute(request)
        if request.settle:
            raise UsageError("models that are learned by queues have a learning rate of their own: leave out --settle")
        name = request.job.partition("/")[2]
        if name not in self.models:
            names = [f"{self.name}/{model}" for model in self.models]
            raise UsageError(f"say which model, as in --job {names[0]}; there are {', '.join(names)}")
        model, plans = self.models[name], {model.name: model.train for model in self.plan.models}
        run, now = self.context.calls.access.run, self._services.clock.now()
        source = ExportSource(run, f"{self.name}/{name}", plans[name], model.log.items, "", now)
        work = partial(write_model, Path(request.file), model.trainer, from_units(model.log.weights), "shared", source)
        return ControlAnswer(said=await self._services.seams.compute(work))

    def pace(self) -> JobPace:
        samples = sum(model.trainer.samples for model in self.models.values())
        return JobPace(self.local_steps, samples, max(model.trainer.speed for model in self.models.values()))

    def status(self) -> JobStatus:
        return queues_status(self, self._idle(), self._now)


async def _next(event: asyncio.Event) -> None:
    """Wait until something has happened since the last time, at most for a slice."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), SLICE)
    event.clear()


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
