"""A node: gets its run, keeps in touch with its swarm, and leaves cleanly. Everything outside is passed in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..config.names import friendly_name
from ..config.options import Options
from ..discovery.announcing import SelfDescription
from ..discovery.membership import Membership
from ..discovery.services import make_services
from ..network.base import Health, Network, cancel_and_wait
from ..runtime.limiter import LIMIT_ORDERS
from ..runtime.routes import Routes
from ..runtime.seams import Seams
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import LocalProblem, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import ViewIs
from ..wire.records import SignedRecord
from ..wire.run import Manifest, RunAccess, TrainPlan, read_manifest
from ..wire.status import MAIN_JOB, Condition, NodeEvent, NodeStatus, PeerState, TrainStatus
from ..wire.types import Seconds
from .entrance import Entrance
from .health import HealthMonitor
from .peer_states import MAX_EXCHANGES, StatePoller, condition_in_words, exchange_rows, invitation, peer_state
from .router import Router

if TYPE_CHECKING:
    from ..jobs.train.job import TrainJob
from ..wire.errors import P2pnodeError


def raise_unwrapped(task: asyncio.Task[None]) -> None:
    """Raise what ended a task; what we raise on purpose comes out of task groups as itself."""
    error = task.exception()
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, P2pnodeError):
        raise error from None
    task.result()


WATCH_PERIOD: Seconds = 1.0
MODEL = "main"
SAVE_LIMIT: Seconds = 2.5  # for the last save: a round under way has to end first


class Node:
    """One participant. `run()` is its life; `status()` may be asked at any time."""

    def __init__(self, options: Options, seams: Seams, network: Network, identity: Identity) -> None:
        self.name = options.name or friendly_name(identity.peer_id)
        self.role: str = options.role
        self.access: RunAccess | None = None
        self.manifest = b""
        self.learner: TrainJob | None = None
        self._options = options
        self._seams = seams
        self._network = network
        self._services = make_services(identity, seams, network, options.limits)
        self._events = self._services.events
        self._born = seams.clock.monotonic()
        self._leaving = asyncio.Event()
        self._page = ""
        self._state_poller = StatePoller(self._services)
        self._health_monitor = HealthMonitor(seams, self._services.limiter)
        self._events.listen(self._health_monitor.hear)
        me = SelfDescription(self.name, self.role, "", options.run.bootstrap, options.train.circle)
        self._membership = Membership(me, self._services)
        self._condition: Condition = "starting"
        network.on_change(self._network_changed)

    # ---- for the outside ----

    @property
    def peer_id(self) -> PeerId:
        return self._services.identity.peer_id

    def routes(self, job: str) -> Routes | None:
        """What peers may ask of a job; None while it is not done here."""
        return None if self.learner is None or job != MODEL else self.learner.routes

    @property
    def record(self) -> SignedRecord | None:
        return self._membership.announcer.record

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None:
        self._events.listen(listener)

    def has_page(self, link: str) -> None:
        """Tell views where the page is. No event: the page shows those, and the link carries its secret."""
        self._page = link

    def leave(self) -> None:
        """Ask the node to leave; `run()` then says goodbye and returns."""
        self._leaving.set()

    @property
    def shards_only_here(self) -> int:
        """How many shards leaving would take out of the swarm, as far as is known."""
        return 0 if self.learner is None else len(self.learner.shard_driver.only_here)

    async def carry_out(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user orders; LocalProblem or UsageError when that cannot be done."""
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints=self.fingerprints(), manifest=self.manifest)
        if request.do in LIMIT_ORDERS:
            return self._services.limiter.carry_out(request, self.role == "node")
        if self.learner is None:
            raise LocalProblem("this node does not learn, or not yet; try again when it does")
        from ..jobs.train.orders import carry_out  # torch, which a node that learns has imported

        return await carry_out(request, self.learner, self._services)

    async def run(self) -> None:
        """Live until asked to leave. UsageError or LocalProblem when the node cannot start or join."""
        leaving = asyncio.create_task(self._leaving.wait())
        living = asyncio.create_task(self._live())
        try:
            await asyncio.wait({leaving, living}, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.is_set():
                await cancel_and_wait(living)
                if self.learner is not None:
                    await self.learner.save(SAVE_LIMIT)
                    await self.learner.shard_driver.hand_over_all(self._options.train.leave_timeout)
                await self._say_goodbye()
            else:
                raise_unwrapped(living)
        finally:
            await cancel_and_wait(leaving)
            if not living.done():  # else it was seen to end
                await cancel_and_wait(living)
            self._services.registry.tidy()
            await self._network.close()
            self._events.say("left", "left the swarm")

    # ---- life ----

    async def _live(self) -> None:
        await self._network.start(Router(self, self._services))
        await self._membership.announcer.refresh_addresses()
        self._events.say("started", f"{self.name} is {self.peer_id}")
        if self._services.registry.book.damaged:
            self._events.say("book", "the peer book was damaged and starts empty", warning=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_condition())
            if self.role != "bootstrap":
                await self._enter_run()
            group.create_task(self._membership.run())
            group.create_task(self._services.limiter.keep())
            if self.manifest and self.role == "node":
                group.create_task(self._learn(read_manifest(self.manifest)))

    async def _learn(self, manifest: Manifest) -> None:
        """Learn what the run learns, if anything. UsageError when that cannot be done with what is installed."""
        options = self._options.train
        if manifest.plan is None and options.task is not None:
            raise UsageError(f"--task {options.task} contradicts the run, which learns nothing; --found a new run")
        if manifest.plan is None or self.access is None or options.meet_only:
            return
        self._health_monitor.learns()
        await self._services.limiter.free()
        learner = await self._learner_module()
        learning: TrainJob = await learner.prepare(manifest, options, self._services, self.access, self._membership)
        learning.meet(self._membership)
        self.learner = learning
        why = await self.learner.keep()
        self._events.say("done", f"{why}; leaving")
        self.leave()

    async def _learner_module(self) -> ModuleType:
        """Needs torch, which takes seconds to import: only where something is learned, and not on the loop."""
        return await self._seams.compute(lambda: import_module("p2pnode.jobs.train.prepare"))

    async def _make_plan(self) -> TrainPlan | None:
        """The plan of a run founded here."""
        if self._options.train.meet_only or self.role != "node":
            return None
        learner = await self._learner_module()
        plan: TrainPlan = await learner.new_plan(self._options.train, self._services)
        return plan

    async def _say_goodbye(self) -> None:
        self._set_condition("leaving")
        if self._network.health.state == "up":
            await self._membership.say_goodbye()

    async def _enter_run(self) -> None:
        entrance = Entrance(self._options.run, self._services, self._membership, self._make_plan)
        entered = await entrance.enter()
        run = entered.run
        # A resumed node knows no swarm time yet: it takes that of the first peer it meets, like a newcomer.
        self._services.clock.established |= entered.how != "resumed"
        self.access, self.manifest = run.access, run.signed_manifest
        self._membership = entered.membership
        self._events.say(entered.how, f"{entered.how} run {run.manifest.name!r} ({run.access.run})")

    # ---- condition ----

    async def _watch_condition(self) -> None:
        """Say when the condition changes; it is worked out anew each time, never remembered."""
        while True:
            self._set_condition(self.condition())
            trainer = None if self.learner is None else self.learner.trainer
            await self._health_monitor.look(*((None, 0, 0.0) if trainer is None else trainer.pace))
            await asyncio.sleep(WATCH_PERIOD)

    def condition(self) -> Condition:
        """How the node is. `connected` only while remote peers answer."""
        state = self._network.health.state
        if self._leaving.is_set():
            return "leaving"
        if state == "starting":
            return "starting"
        if state == "closed":
            return "leaving"
        if state == "down":
            return "network down"
        if self.access is None and self.role != "bootstrap":
            return "searching"
        if self._membership.connected:
            return "connected"
        knows_somebody = self._membership.looks_for_others or self._services.table.count_present() > 0
        return "searching" if knows_somebody else "alone"

    def _set_condition(self, condition: Condition) -> None:
        if condition != self._condition:
            lost = condition == "network down" or (condition == "searching" and self._condition == "connected")
            self._condition = condition
            self._events.say(condition, self._why(condition), warning=lost)

    def _why(self, condition: Condition) -> str:
        here = self._services.table.count_present(self._tag)
        trouble = self._membership.search.trouble
        return condition_in_words(condition, here, self.access is not None, trouble, self._network.health.reason)

    def _network_changed(self, health: Health) -> None:
        if self._condition != "starting":
            self._set_condition(self.condition())

    # ---- showing ----

    @property
    def _tag(self) -> str | None:
        return self.access.tag if self.access is not None else None

    def invite(self) -> str:
        """The command a friend pastes, or "" while there is nothing to invite to."""
        return invitation(self.access, self._membership.announcer.addresses, self._membership.me.bootstrap)

    def status(self) -> NodeStatus:
        services = self._services
        own_exchanges = () if self.learner is None else self.learner.train_progress.partners.values()
        condition = self.condition() if self._condition != "starting" else self._condition
        return NodeStatus(
            id=self.peer_id,
            name=self.name,
            run=self.access.run if self.access is not None else "",
            role=self.role,
            condition=condition,
            reason=self._why(condition),
            private=self.access is not None and self.access.private,
            uptime_seconds=self._seams.clock.monotonic() - self._born,
            clock_offset_seconds=services.clock.offset,
            addresses=self._membership.announcer.addresses,
            invite=self.invite(),
            daemon_starts=self._network.health.generation,
            traffic=services.calls.traffic.frozen(),
            peers=self._peers(),
            events=self._events.latest(),
            jobs=self._jobs(),
            page=self._page,
            exchanges=exchange_rows(own_exchanges, self._state_poller.answers),
            paused=services.limiter.resting,
            limits=services.limiter.limits,
            machine=services.limiter.machine,
            shards=() if self.learner is None else self.learner.shards.all(self._seams.clock.monotonic()),
            unwell=self._health_monitor.reasons(),
        )

    def _jobs(self) -> dict[str, TrainStatus]:
        return {} if self.learner is None else {MAIN_JOB: self.learner.status()}

    def _peers(self) -> tuple[PeerState, ...]:
        here = (peer for peer in self._services.table if not peer.announcement.left)
        peers = tuple(peer_state(peer, self._services, self._state_poller.jobs(peer.id)) for peer in here)
        return peers if self.learner is None else self.learner.describe(peers)

    def view(self) -> ViewIs:
        """What this node answers to members of its run that ask how it gets on."""
        if self.learner is None:
            return ViewIs()
        latest = list(self.learner.train_progress.partners.values())[-MAX_EXCHANGES:]
        return ViewIs({name: status.state for name, status in self._jobs().items()}, tuple(latest))

    def fingerprints(self) -> dict[str, bytes]:
        """What the models of this run have learned, as their nodes announce it."""
        told = {peer.id: peer.announcement.fingerprint for peer in self._services.table.present(self._tag)}
        own = b"" if self.learner is None else self.learner.likeness.fingerprint
        return {peer: fingerprint for peer, fingerprint in {self.peer_id: own, **told}.items() if fingerprint}

    async def look_around(self) -> None:
        """Ask a few peers how they are doing, for `status`. Worth its calls only while somebody watches."""
        if self.access is not None and self._network.health.state == "up":
            await self._state_poller.once(self.access)
