"""A node: gets its run, stays in contact with the swarm, runs jobs, and leaves cleanly. The outside is passed in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..config.names import friendly_name
from ..config.options import Options
from ..discovery.announcing import SelfDescription
from ..discovery.lan import Advert, advert_of
from ..discovery.membership import Membership
from ..discovery.services import make_services
from ..jobs.offers import Consent, nobody_to_ask
from ..jobs.runner import JobRunner
from ..network.base import Health, Network, cancel_and_wait
from ..runtime.events import Kind
from ..runtime.limiter import LIMIT_COMMANDS
from ..runtime.routes import Routes
from ..runtime.seams import Seams
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import P2pnodeError, unwrap
from ..wire.ids import Identity, PeerId
from ..wire.messages import ViewIs
from ..wire.records import SignedRecord
from ..wire.run import Manifest, RunAccess, read_manifest
from ..wire.status import Condition, NodeEvent, NodeStatus, PeerState
from ..wire.types import Seconds
from .health import HealthMonitor
from .joining import RunJoining, bootstrap_of
from .peer_states import MAX_EXCHANGES, StatePoller, condition_in_words, exchange_rows, own_invite, peer_state
from .router import Router

WATCH_PERIOD: Seconds = 1.0
SAVE_LIMIT: Seconds = 2.5  # for the last save: a round under way has to end first


class Node:
    """One participant of a run. `run()` returns when it has left; `status()` may be called at any time."""

    def __init__(
        self,
        options: Options,
        seams: Seams,
        network: Network,
        identity: Identity,
        consent: Consent = nobody_to_ask,
    ) -> None:
        """`consent` asks the user whether a file that a run brings along may run here."""
        self.name = options.name or friendly_name(identity.peer_id)
        self.role: str = options.role
        self.access: RunAccess | None = None
        self.manifest = b""
        self._options = options
        self._seams = seams
        self._network = network
        self._services = make_services(identity, seams, network, options.limits)
        self._events = self._services.events
        self._born = seams.clock.monotonic()
        self._leaving = asyncio.Event()
        self.started = False  # whether the network is up, so that there is a swarm to leave
        self.page = self._page_in_network = ""
        self._run_name = ""
        self._state_poller = StatePoller(self._services)
        self._health_monitor = HealthMonitor(seams, self._services.limiter)
        self._events.listen(self._health_monitor.hear)
        self.jobs = JobRunner(self._services, options, consent)
        resumes = self.role != "bootstrap"  # a meeting point is in no run
        bootstrap = bootstrap_of(options.run, seams.storage) if resumes else options.run.bootstrap
        me = SelfDescription(self.name, self.role, "", bootstrap, self.jobs.announcements)
        self._membership = Membership(me, self._services)
        self._condition: Condition = "starting"
        network.on_change(self._network_changed)

    # ---- for the outside ----

    @property
    def peer_id(self) -> PeerId:
        return self._services.identity.peer_id

    def routes(self, job: str) -> Routes | None:
        """What peers may ask of a job; None while it is not done here."""
        return self.jobs.routes(job)

    def prepares(self, job: str) -> bool:
        """Whether this node takes part in a job that is not ready yet."""
        return self.jobs.prepares(job)

    def job_file(self, job: str) -> bytes | None:
        """The file that a job needs, for those who join; None where it is not here."""
        return None if self.access is None else self.jobs.file(self.access.run, job)

    @property
    def record(self) -> SignedRecord | None:
        return self._membership.announcer.record

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None:
        self._events.listen(listener)

    def say(self, kind: Kind, text: str, *, warning: bool = False) -> None:
        """Tell the user something about this start, as an event."""
        self._events.say(kind, text, warning=warning)

    def advert(self) -> Advert | None:
        """What others in the local network may know about this node's run; None while there is nothing to say."""
        if self.access is None or self.role != "node":
            return None
        others = [peer for peer in self._services.table.present(self._tag) if peer.announcement.role == "node"]
        addresses = self._membership.announcer.addresses
        return advert_of(self.access, read_manifest(self.manifest), len(others) + 1, addresses)

    def has_page(self, link: str, in_network: str) -> None:
        """Note the links to the node's page for `status`. No event: the page shows events, and `link` is secret."""
        self.page, self._page_in_network = link, in_network

    def leave(self) -> None:
        """Ask the node to leave; `run()` then says goodbye and returns."""
        self._leaving.set()

    @property
    def shards_only_here(self) -> int:
        """How many shards leaving would take out of the swarm, as far as is known."""
        return self.jobs.unreplicated

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Carry out a command of the user; LocalProblem or UsageError when that fails."""
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints=self.fingerprints(request.job), manifest=self.manifest)
        if request.do in LIMIT_COMMANDS:
            return self._services.limiter.execute(request, self.role == "node")
        return await self.jobs.execute(request)

    async def run(self) -> None:
        """Run until asked to leave. UsageError or LocalProblem when the node cannot start or join."""
        leaving = asyncio.create_task(self._leaving.wait())
        living = asyncio.create_task(self._live())
        try:
            await asyncio.wait({leaving, living}, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.is_set():
                await cancel_and_wait(living)
                await self.jobs.save(SAVE_LIMIT)
                await self.jobs.hand_over()
                await self._say_goodbye()
            else:
                error = living.exception()
                if error is not None and isinstance(problem := unwrap(error), P2pnodeError):
                    raise problem from None
                living.result()
        finally:
            await cancel_and_wait(leaving)
            if not living.done():  # else it was seen to end
                await cancel_and_wait(living)
            self._services.registry.tidy()
            await self._network.close()
        if self.started:
            self._events.say("left", "left the swarm")

    # ---- life ----

    async def _live(self) -> None:
        joining = RunJoining(self._options.run, self._services, self._membership, self.jobs)
        if self.role != "bootstrap":
            await joining.check()  # a wrong option costs no daemon and no call to a peer
        await self._network.start(Router(self, self._services))
        await self._membership.announcer.refresh_addresses()
        self.started = True
        self._events.say("started", f"{self.name} is {self.peer_id}")
        self._report_damage()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_condition())
            if self.role != "bootstrap":
                await self._enter_run(joining)
            group.create_task(self._membership.run())
            group.create_task(self._services.limiter.run())
            if self.jobs.names:
                group.create_task(self._work(read_manifest(self.manifest)))

    async def _work(self, manifest: Manifest) -> None:
        """Do the run's jobs, and leave when all have reached their goals. UsageError or LocalProblem when none can."""
        assert self.access is not None
        self._health_monitor.expect_progress()
        reason = await self.jobs.run(manifest, self.access, self._membership)
        self._events.say("done", f"{reason}; leaving")
        self.leave()

    async def _say_goodbye(self) -> None:
        self._set_condition("leaving")
        if self._network.health.state == "up":
            await self._membership.say_goodbye()

    async def _enter_run(self, joining: RunJoining) -> None:
        entered = await joining.enter()
        run = entered.run
        # A resumed node knows no swarm time yet: it takes that of the first peer it meets, like a newcomer.
        self._services.clock.established |= entered.how != "resumed"
        self.access, self.manifest, self._run_name = run.access, run.signed_manifest, run.manifest.name
        self.jobs.enter(run.manifest)
        self._membership = entered.membership
        self._events.say(entered.how, f"{entered.how} run {run.manifest.name!r} ({run.access.run})")

    # ---- condition ----

    async def _watch_condition(self) -> None:
        """Report changes of the condition, which is computed anew each time, and check the node's health."""
        while True:
            self._set_condition(self.condition())
            self._report_damage()
            await self._health_monitor.look(self.jobs.paces())
            await asyncio.sleep(WATCH_PERIOD)

    def _report_damage(self) -> None:
        """Report damaged files that were found since the last time."""
        warnings = self._seams.storage.warnings
        while warnings:
            self._events.say("damaged", warnings.pop(0), warning=True)

    def condition(self) -> Condition:
        """The node's condition. It is `connected` only while remote peers answer."""
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
        roles = (peer.announcement.role for peer in self._services.table.present(self._tag))
        trouble = self._membership.search.trouble
        return condition_in_words(condition, roles, self.access is not None, trouble, self._network.health.reason)

    def _network_changed(self, health: Health) -> None:
        if self._condition != "starting":
            self._set_condition(self.condition())

    # ---- showing ----

    @property
    def _tag(self) -> str | None:
        return self.access.tag if self.access is not None else None

    def invite(self) -> str:
        """The command a friend pastes, or "" while there is nothing to invite to."""
        return own_invite(self.access, self._membership.announcer.addresses, self._membership.me.bootstrap)

    def status(self) -> NodeStatus:
        services = self._services
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
            jobs=self.jobs.status(),
            run_name=self._run_name,
            page=self.page,
            page_in_network=self._page_in_network,
            exchanges=exchange_rows(self.jobs.exchanges(), self._state_poller.answers),
            paused=services.limiter.resting,
            limits=services.limiter.limits,
            machine=services.limiter.machine,
            shards=self.jobs.shard_rows(),
            compute_idle=self.jobs.scheduler.idle(),
            unwell=self._health_monitor.reasons(),
        )

    def _peers(self) -> tuple[PeerState, ...]:
        here = (peer for peer in self._services.table if not peer.announcement.left)
        peers = tuple(peer_state(peer, self._services, self._state_poller.jobs(peer.id)) for peer in here)
        return self.jobs.describe(peers)

    def view(self) -> ViewIs:
        """What this node answers to members of its run that ask how it gets on."""
        states = {name: job.status().state for name, job in self.jobs.jobs.items()}
        return ViewIs(states, tuple(self.jobs.exchanges())[-MAX_EXCHANGES:])

    def fingerprints(self, job: str = "") -> dict[str, bytes]:
        """What the models of a job have learned, as their nodes announce it; of the first that has any by default."""
        if not job and self.manifest:
            names = [entry.name for entry in read_manifest(self.manifest).jobs]
            return next((found for name in names if (found := self.fingerprints(name))), {})
        announced = {peer.id: peer.announcement.job(job) for peer in self._services.table.present(self._tag)}
        own = [(self.peer_id, one) for one in self.jobs.announcements() or () if one.job == job]
        return {peer: one.fingerprint for peer, one in (*own, *announced.items()) if one.fingerprint}

    async def look_around(self) -> None:
        """Ask a few peers for their states, for `status`. Only worth the calls while somebody watches."""
        if self.access is not None and self._network.health.state == "up":
            await self._state_poller.once(self.access)
