"""Getting into a run: found one, go on with the saved one, or join the one a bootstrap or an invite names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..config.options import NO_LIMITS, GuestSettings
from ..config.task_choice import TaskChoice
from ..config.until import Until
from ..discovery.membership import Membership
from ..network.base import Seconds
from ..wire.addresses import Address, parse_address
from ..wire.errors import LocalProblem, NetworkDown, PeerError, UsageError
from ..wire.run import RunAccess, TrainPlan
from .assemble import Services
from .saved_run import (
    Run,
    SavedRun,
    adopted_access,
    check_protocol,
    found_run,
    load_manifest,
    load_saved,
    manifest_from_any,
    save_run,
)

RETRY_PAUSE: Seconds = 1.0
RETRY_PAUSE_MOST: Seconds = 15.0


MakePlan = Callable[[], Awaitable[TrainPlan | None]]


@dataclass(frozen=True)
class DataPart:
    """One of `parts` equal shares of the data, split as `how` says (iid, dirichlet:0.3, labels:2)."""

    how: str
    part: int
    parts: int
    seed: int = 0


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
    task: TaskChoice | None = None  # None: a run founded here only meets
    share: DataPart | None = None  # a fixed part of the data, for experiments
    share_data: bool = False  # what this node brings may travel
    visits: bool = True  # models of others may come to train on what stays here
    reserve: bool = False  # train less on what models are sure of
    until: Until | None = None  # None: learn until asked to leave
    max_disk: int | None = None  # bytes that learning may use
    leave_timeout: Seconds = 20.0  # for handing over shards that are only here
    meet_only: bool = False  # take no part in learning, whatever the run learns
    guest: GuestSettings = NO_LIMITS
    circle: str = ""  # with whom the delta set is shared, for experiments; "": with all of the run


@dataclass(frozen=True)
class Entered:
    """A run, how the node came by it, and the membership that keeps it there."""

    run: Run
    how: Literal["founded", "resumed", "joined"]
    membership: Membership


class Entrance:
    """One node's way into its run. Waits for ever for somebody to answer, unless `join_timeout` is set."""

    def __init__(self, settings: NodeSettings, services: Services, membership: Membership, plan: MakePlan) -> None:
        self._settings = settings
        self._make_plan = plan
        self._services = services
        self._storage = services.seams.storage
        self._membership = membership

    async def enter(self) -> Entered:
        """The run, saved for the next start. UsageError or LocalProblem when there is no way in."""
        try:
            async with asyncio.timeout(self._settings.join_timeout):
                run, how = await self._obtain()
        except TimeoutError:
            raise self._nobody_answered() from None
        check_protocol(run.manifest)
        save_run(self._storage, run, tuple(address.text for address in self._membership.me.bootstrap))
        return Entered(run, how, self._membership.in_run(run.access.tag))

    def _nobody_answered(self) -> LocalProblem:
        trouble = self._membership.search.trouble
        return LocalProblem(
            f"could not join within {self._settings.join_timeout:.0f} s"
            + (f" ({trouble})" if trouble else "")
            + "; check the address and that the other side runs, or leave out --join-timeout to keep trying"
        )

    async def _obtain(self) -> tuple[Run, Literal["founded", "resumed", "joined"]]:
        settings = self._settings
        access = settings.access
        saved = None if settings.found or access is not None else load_saved(self._storage)
        if saved is not None and self._same_bootstrap(saved):
            access = RunAccess.parse(saved.access)
            known = tuple(parse_address(text) for text in saved.bootstrap)
            self._membership.me = replace(self._membership.me, bootstrap=settings.bootstrap or known)
        if access is None and (settings.found or not settings.bootstrap):
            return await self._found(), "founded"
        signed = None if access is None else load_manifest(self._storage, access)
        if access is not None and signed is not None:
            return Run(access, signed), "resumed"
        return await self._join(access or await self._ask_bootstrap()), "joined"

    def _same_bootstrap(self, saved: SavedRun) -> bool:
        return all(address.text in saved.bootstrap for address in self._settings.bootstrap)

    async def _found(self) -> Run:
        settings = self._settings
        if settings.bootstrap:
            await self._meet_someone()  # their swarm's time is ours
        name = settings.run_name or settings.name
        plan = await self._make_plan()
        now, rng = self._services.clock.now(), self._services.seams.rng
        return found_run(self._services.identity, name, settings.private, now, rng, plan)

    async def _ask_bootstrap(self) -> RunAccess:
        """The run that a bootstrap is in; one in a run comes before a mere meeting point."""
        await self._meet_someone()
        welcomes = list(self._membership.search.welcomes.items())
        return adopted_access(*next((item for item in welcomes if item[1].run), welcomes[0]))

    async def _meet_someone(self) -> None:
        """Contact the bootstrap addresses until one answers."""
        async for _ in self._again_and_again():
            await self._membership.contact_round()
            if self._membership.search.welcomes:
                return
            self._raise_if_all_wrong()
            self._say_searching("no bootstrap answers yet")

    async def _join(self, access: RunAccess) -> Run:
        """Find a member of the run and get its manifest."""
        services = self._services
        searching = self._membership.in_run(access.tag)
        self._membership.search = searching.search
        async for _ in self._again_and_again():
            await searching.contact_round()
            with contextlib.suppress(PeerError, NetworkDown):
                await searching.read_directory()
            members = [peer.id for peer in services.table.to_try(access.tag)]
            signed = await manifest_from_any(services.calls, services.identity.peer_id, members, access)
            if signed is not None:
                return Run(access, signed)
            self._raise_if_all_wrong()
            self._say_searching(self._no_member_yet(access))
        raise AssertionError("trying again never ends")

    def _no_member_yet(self, access: RunAccess) -> str:
        private = [address for address, welcome in self._membership.search.welcomes.items() if welcome.private]
        hint = f"; the run at {private[0].transport} is private: does --run lack its key?" if private else ""
        return f"no member of run {access.run} found yet{'' if access.private else hint}"

    @staticmethod
    async def _again_and_again() -> AsyncIterator[None]:
        pause = RETRY_PAUSE
        while True:
            yield
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, RETRY_PAUSE_MOST)

    def _raise_if_all_wrong(self) -> None:
        """One bootstrap that answers suffices; when every one is somebody else, the addresses are wrong."""
        wrong = self._membership.search.wrong
        if self._settings.bootstrap and all(address in wrong for address in self._settings.bootstrap):
            address = self._settings.bootstrap[0]
            raise UsageError(f"{address}: {wrong[address]}; ask for the address again")

    def _say_searching(self, what: str) -> None:
        search, events = self._membership.search, self._services.events
        text = f"{what} ({search.trouble}); still trying" if search.trouble else f"{what}; still trying"
        search.trouble = search.trouble or what
        latest = events.latest(1)
        if not latest or latest[0].text != text:
            events.say("searching", text)
