"""Members tell each other what they know of leases, logs and the founder's changes, once a second and after pushes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from math import inf

from ...network.base import MemorySink, Payload, StreamLimits
from ...wire.bounded import put_bounded
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ...wire.ids import PeerId, short
from ...wire.types import Seconds
from .changes import QueuesChange
from .log import NotConnected, Step, decode_step
from .messages import MAX_NEWS_BYTES, MAX_POSITIONS, GetQueue, QueueNews, QueueView, Sync, SyncIs
from .model import QueueModel
from .state import QueuesState

SYNC_EVERY: Seconds = 1.0
MAX_ASKED = 4096
_OVERHEAD = 4 << 20


class Syncer:
    """Asks members what they know, answers what they ask, and keeps this node's logs and leases up to date."""

    def __init__(self, state: QueuesState, on_change: Callable[[QueuesChange], Awaitable[None]]) -> None:
        """`on_change` is awaited with each newer change of the founder that comes in."""
        self._state = state
        self._on_change = on_change
        self._asked: dict[tuple[PeerId, str], Seconds] = {}  # when each member was last asked about a queue
        self._first = asyncio.Event()  # a member has said what it knows, since the start

    async def ask_owners(self) -> None:
        """Ask owners about their queues, once a second."""
        while True:
            await asyncio.gather(*(self.ask(peer, queues) for peer, queues in self._owners_to_ask().items()))
            await asyncio.sleep(SYNC_EVERY)

    async def ask_around(self) -> None:
        """Ask one member after the other about all queues: half a second after owners, who have sent new steps then."""
        state = self._state
        await asyncio.sleep(SYNC_EVERY / 2)
        while True:
            members = state.members()
            if members:
                await self.ask(state.services.seams.rng.choice(members), set(state.models))
            if state.company.alone():
                self._first.set()
            await asyncio.sleep(SYNC_EVERY)

    async def wait_for_first(self, limit: Seconds) -> None:
        """Until a member has said what it knows, or this node is known to be alone, or `limit` seconds are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._first.wait()

    def _owners_to_ask(self) -> dict[PeerId, set[str]]:
        """Owners, and who announces to own a queue, about queues that they were not asked about in the last second."""
        state = self._state
        found: dict[PeerId, set[str]] = {}
        for peer in state.members():
            owned = {model.name for model in state.models.values() if model.owner == peer}
            owned |= {name for name in state.announced_by(peer).owned if name in state.models}
            due = {name for name in owned if state.now - self._asked.get((peer, name), -inf) >= SYNC_EVERY}
            if due:
                found[peer] = due
        return found

    # ---- asking ----

    async def ask(self, peer: PeerId, queues: set[str]) -> None:
        """Learn what a member knows of some queues."""
        state = self._state
        for name in queues:
            put_bounded(self._asked, (peer, name), state.now, MAX_ASKED)
        views = tuple(_view(model) for model in state.models.values() if model.name in queues)
        try:
            answer = await state.context.calls.ask(peer, Sync(views, state.change.number, state.announcement()), SyncIs)
        except (PeerError, NetworkDown):
            return
        state.note_report(peer, answer.state)
        try:
            if answer.change is not None and state.is_newer(answer.change):
                await self._on_change(answer.change)
            asked = {view.queue: view for view in views}
            for news in answer.queues:
                await self._learn(peer, news, asked.get(news.queue))
        except ValueError as problem:
            state.services.fault(peer, f"queues: {problem}")
            return
        self._first.set()

    async def _learn(self, peer: PeerId, news: QueueNews, asked: QueueView | None) -> None:
        """Take in what a member knows of a queue that it was `asked` about."""
        state = self._state
        if asked is None:
            raise ValueError(f"news of {news.queue!r}, which nobody asked for")
        model = state.models[news.queue]
        model.note_head(peer, news.head)
        known = asked if news.agrees else news
        state.learn_lease(model, known.lease, known.renewal)
        self._learn_steps(model, [decode_step(data) for data in news.steps])
        if news.facts is not None and not model.watch.mine:
            model.note_facts(news.facts, state.now)
        if news.snapshot:
            await self._take_snapshot(model, peer)
        state.settle(model)

    def _learn_steps(self, model: QueueModel, steps: list[Step]) -> None:
        """Take in steps of a queue's log; ValueError when one is invalid."""
        before = model.log.taken_back
        with contextlib.suppress(NotConnected):  # the log has gone on since the question; the next answer fits
            model.log.add(steps)
        if model.log.taken_back > before:
            count = model.log.taken_back - before
            self._state.say(f"{model.name}: took back {count} steps of an owner that was replaced")

    async def _take_snapshot(self, model: QueueModel, peer: PeerId) -> None:
        sink, limits = MemorySink(), StreamLimits(16 * len(model.log.weights) + _OVERHEAD)
        with contextlib.suppress(PeerError, NetworkDown):
            await self._state.context.calls.fetch(peer, GetQueue(model.name), sink, limits)
            if model.log.adopt(sink.content()):
                self._state.services.events.say("caught up", f"{model.name}: took the weights of {short(peer)}")

    # ---- answering ----

    def answer(self, peer: PeerId, request: Sync) -> SyncIs:
        """What this node knows. Queues whose model it does not have are left out."""
        state, room, news = self._state, MAX_NEWS_BYTES, []
        state.note_report(peer, request.state)
        for view in request.queues:
            model = state.models.get(view.queue)
            if model is None:
                self.check_name(view.queue)
                continue
            try:
                state.learn_lease(model, view.lease, view.renewal)
            except ValueError as problem:
                raise PeerMisbehaved(f"queue {view.queue}: {problem}") from None
            model.note_head(peer, view.positions[0].id if view.positions else b"")
            news.append(self._news(model, view, room))
            room -= sum(map(len, news[-1].steps))
        change = state.change if state.change.number > request.change else None
        return SyncIs(tuple(news), change, state.announcement())

    def check_name(self, queue: str) -> None:
        """PeerRefused for a queue that this job does not have, as far as this node knows."""
        if queue not in self._state.names:
            raise PeerRefused("unknown queue", "there is no such queue in this job, or not yet")

    def _news(self, model: QueueModel, view: QueueView, room: int) -> QueueNews:
        """What this node knows of a queue, with steps that fill `room` bytes at most."""
        state, watch = self._state, model.watch
        steps = model.log.after(view.positions, room) if room > 0 else []
        ahead = steps is None and model.log.head.index > 0
        facts = model.facts(state.idle, state.now)
        agrees = (view.lease, view.renewal) == (watch.lease, watch.renewal)
        lease, renewal = (None, None) if agrees else (watch.lease, watch.renewal)
        return QueueNews(model.name, model.log.head.id, lease, renewal, facts, tuple(steps or ()), ahead, agrees)

    async def stream(self, peer: PeerId, request: GetQueue) -> Payload:
        """A queue's log as a whole."""
        model = self._state.models.get(request.queue)
        if model is None:
            raise PeerRefused("unknown queue", "there is no such queue here")
        return Payload.of(model.log.snapshot())


def _view(model: QueueModel) -> QueueView:
    return QueueView(model.name, model.log.positions()[:MAX_POSITIONS], model.watch.lease, model.watch.renewal)
