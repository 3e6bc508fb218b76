"""A node: gets its run, keeps in touch with its swarm, and leaves cleanly. Everything outside is passed in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..addresses import Address, parse_address
from ..errors import LocalProblem, NetworkDown, PeerError, UsageError
from ..ids import Identity, PeerId
from ..network.base import Health, Network, Seconds
from ..peers.table import Peer
from ..records import SignedRecord
from ..run import RunAccess, invite
from .joining import Run, adopted_access, found_run, load_manifest, load_saved, manifest_from_any, save_run
from .membership import Me, Membership
from .parts import make_parts
from .serve import NodeServer
from .status import Condition, Event, PeerRow, Status
from .world import World

WATCH_PERIOD: Seconds = 1.0
RETRY_PAUSE: Seconds = 1.0
RETRY_PAUSE_MOST: Seconds = 15.0
INVITE_ADDRESSES = 2


@dataclass(frozen=True)
class NodeSettings:
    """What the user decides about a node."""

    name: str
    role: str = "node"  # node | bootstrap | observer
    bootstrap: tuple[Address, ...] = ()
    access: RunAccess | None = None
    found: bool = False
    private: bool = False
    run_name: str = ""
    join_timeout: Seconds | None = None


class Node:
    """One participant. `run()` is its life; `status()` may be asked at any time."""

    def __init__(self, settings: NodeSettings, world: World, network: Network, identity: Identity) -> None:
        self.name = settings.name
        self.role = settings.role
        self.access: RunAccess | None = None
        self.manifest = b""
        self._settings = settings
        self._world = world
        self._network = network
        self._parts = make_parts(identity, world, network)
        self._events = self._parts.events
        self._born = world.clock.monotonic()
        self._leaving = asyncio.Event()
        self._membership = Membership(Me(self.name, self.role, "", settings.bootstrap), self._parts)
        self._condition: Condition = "starting"
        network.on_change(self._network_changed)

    # ---- for the outside ----

    @property
    def peer_id(self) -> PeerId:
        return self._parts.identity.peer_id

    @property
    def record(self) -> SignedRecord | None:
        return self._membership.record

    def on_event(self, listener: Callable[[Event], None]) -> None:
        self._events.listen(listener)

    def leave(self) -> None:
        """Ask the node to leave; `run()` then says goodbye and returns."""
        self._leaving.set()

    async def run(self) -> None:
        """Live until asked to leave. UsageError or LocalProblem when the node cannot start or join."""
        leaving = asyncio.create_task(self._leaving.wait())
        living = asyncio.create_task(self._live())
        try:
            await asyncio.wait({leaving, living}, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.is_set():
                await self._cancelled(living)
                await self._say_goodbye()
            else:
                living.result()  # raises what ended it
        finally:
            await self._cancelled(leaving)
            await self._cancelled(living)
            self._parts.acquaintances.tidy()
            await self._network.close()
            self._events.say("left", "left the swarm")

    @staticmethod
    async def _cancelled(task: asyncio.Task[object]) -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task

    # ---- life ----

    async def _live(self) -> None:
        await self._network.start(NodeServer(self, self._parts))
        await self._membership.refresh_addresses()
        self._events.say("started", f"{self.name} is {self.peer_id}")
        if self._parts.acquaintances.book.damaged:
            self._events.say("book", "the peer book was damaged and starts empty", warning=True)
        if self.role != "bootstrap":
            await self._enter_run()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._membership.keep())
            group.create_task(self._watch_condition())

    async def _say_goodbye(self) -> None:
        self._set_condition("leaving")
        if self._network.health.state == "up":
            await self._membership.say_goodbye()

    # ---- getting into a run ----

    async def _enter_run(self) -> None:
        try:
            async with asyncio.timeout(self._settings.join_timeout):
                run, how = await self._obtain_run()
        except TimeoutError:
            trouble = self._membership.search.trouble
            raise LocalProblem(
                f"nobody answered within {self._settings.join_timeout:.0f} s"
                + (f" ({trouble})" if trouble else "")
                + "; check the address and that the other side runs, or leave out --join-timeout to keep trying"
            ) from None
        bootstrap = self._settings.bootstrap
        save_run(self._world.storage, run, tuple(address.text for address in bootstrap))
        # A resumed node knows no swarm time yet: it takes that of the first peer it meets, like a newcomer.
        self._parts.clock.established |= how != "resumed"
        self.access, self.manifest = run.access, run.signed_manifest
        self._membership = self._membership.in_run(run.access.tag)
        self._events.say(how, f"{how} run {run.manifest.name!r} ({run.access.run})")

    async def _obtain_run(self) -> tuple[Run, str]:
        """The run to take part in, and how it was come by: founded, resumed or joined."""
        settings = self._settings
        saved = None if settings.found else load_saved(self._world.storage)
        access = settings.access
        if access is None and saved is not None and self._same_bootstrap(saved.bootstrap):
            access = RunAccess.parse(saved.access)
            known = tuple(parse_address(text) for text in saved.bootstrap)
            self._membership.me = replace(self._membership.me, bootstrap=settings.bootstrap or known)
        if access is not None:
            signed = load_manifest(self._world.storage, access)
            if signed is not None:
                return Run(access, signed), "resumed"
        elif settings.found or not settings.bootstrap:
            clock, rng = self._parts.clock, self._world.rng
            if settings.bootstrap:
                await self._meet_someone()  # their swarm's time is ours
            name = settings.run_name or settings.name
            return found_run(self._parts.identity, name, settings.private, clock.now(), rng), "founded"
        return await self._join(access), "joined"

    def _same_bootstrap(self, saved: tuple[str, ...]) -> bool:
        return all(address.text in saved for address in self._settings.bootstrap)

    async def _join(self, access: RunAccess | None) -> Run:
        """Learn the run from whoever answers; asks for ever unless limited."""
        if access is None:
            access = await self._ask_bootstrap_for_run()
        searching = self._membership.in_run(access.tag)
        pause = RETRY_PAUSE
        while True:
            await searching.contact_round()
            with contextlib.suppress(PeerError, NetworkDown):
                await searching.read_directory()
            peers = [peer.id for peer in self._parts.table.present(access.tag)]
            signed = await manifest_from_any(self._parts.calls, self.peer_id, peers, access)
            if signed is not None:
                return Run(access, signed)
            self._membership.search = searching.search
            self._raise_if_all_wrong(searching)
            self._say_searching(f"no member of run {access.run} found yet", searching.search.trouble)
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, RETRY_PAUSE_MOST)

    async def _ask_bootstrap_for_run(self) -> RunAccess:
        await self._meet_someone()
        welcomes = self._membership.search.welcomes
        in_a_run = [item for item in welcomes.items() if item[1].run] or list(welcomes.items())
        return adopted_access(*in_a_run[0])

    async def _meet_someone(self) -> None:
        """Contact the bootstrap addresses until one answers."""
        pause = RETRY_PAUSE
        while True:
            await self._membership.contact_round()
            if self._membership.search.welcomes:
                return
            self._raise_if_all_wrong(self._membership)
            self._say_searching("no bootstrap answers yet", self._membership.search.trouble)
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, RETRY_PAUSE_MOST)

    def _raise_if_all_wrong(self, membership: Membership) -> None:
        """One bootstrap that answers suffices; when every one is somebody else, the addresses are wrong."""
        wrong = membership.search.wrong
        if self._settings.bootstrap and all(address in wrong for address in self._settings.bootstrap):
            address = self._settings.bootstrap[0]
            raise UsageError(f"{address}: {wrong[address]}; ask for the address again")

    def _say_searching(self, what: str, trouble: str) -> None:
        text = f"{what} ({trouble}); still trying" if trouble else f"{what}; still trying"
        if not self._events.latest(1) or self._events.latest(1)[0].text != text:
            self._events.say("searching", text)
        self._condition = "searching"

    # ---- condition ----

    async def _watch_condition(self) -> None:
        """Say when the condition changes; it is worked out anew each time, never remembered."""
        while True:
            self._set_condition(self.condition())
            await asyncio.sleep(WATCH_PERIOD)

    def condition(self) -> Condition:
        """How the node is. `connected` only while remote peers answer."""
        state = self._network.health.state
        if self._leaving.is_set():
            return "leaving"
        if state == "starting":
            return "starting"
        if state != "up":
            return "network down"
        if self._membership.connected:
            return "connected"
        knows_somebody = self._membership.looks_for_others or self._parts.table.count_present() > 0
        return "searching" if knows_somebody else "alone"

    def _set_condition(self, condition: Condition) -> None:
        if condition != self._condition:
            self._condition = condition
            self._events.say(condition, self._why(condition), warning=condition in ("network down", "searching"))

    def _why(self, condition: Condition) -> str:
        match condition:
            case "connected":
                return f"connected: {self._parts.table.count_present(self._tag)} peers here"
            case "alone":
                return "nobody else is here yet; send them the invite"
            case "searching":
                trouble = self._membership.search.trouble
                return f"no peer answers{f' ({trouble})' if trouble else ''}; still trying"
            case "network down":
                return f"the network daemon is being replaced ({self._network.health.why or 'it stopped'})"
            case _:
                return condition

    def _network_changed(self, health: Health) -> None:
        if self._condition != "starting":
            self._set_condition(self.condition())

    # ---- showing ----

    @property
    def _tag(self) -> str | None:
        return self.access.tag if self.access is not None else None

    def invite(self) -> str:
        """The command a friend pastes, or "" while there is nothing to invite to."""
        addresses = self._membership.own_addresses[:INVITE_ADDRESSES]
        if self.access is None or not addresses:
            return ""
        return invite(self.access, addresses)

    def status(self) -> Status:
        parts = self._parts
        condition = self.condition() if self._condition != "starting" else self._condition
        return Status(
            id=self.peer_id,
            name=self.name,
            run=self.access.run if self.access is not None else "",
            role=self.role,
            condition=condition,
            why=self._why(condition),
            private=self.access is not None and self.access.private,
            uptime_seconds=self._world.clock.monotonic() - self._born,
            clock_offset_seconds=parts.clock.offset,
            addresses=self._membership.own_addresses,
            invite=self.invite(),
            daemon_starts=self._network.health.generation,
            traffic=parts.calls.traffic.frozen(),
            peers=tuple(self._row(peer) for peer in parts.table if not peer.announcement.left),
            events=self._events.latest(),
        )

    def _row(self, peer: Peer) -> PeerRow:
        now = self._world.clock.monotonic()
        return PeerRow(
            id=peer.id,
            name=peer.name,
            role=peer.announcement.role,
            addresses=peer.announcement.addresses,
            present=not peer.silent,
            heard_seconds_ago=None if peer.heard is None else now - peer.heard,
            latency_ms=None if peer.latency is None else peer.latency * 1000,
            faults=self._parts.standing.faults_of(peer.id),
        )
