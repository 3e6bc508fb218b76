"""How a node gets its run: founds one, resumes the saved one, or joins the one a bootstrap or an invite names."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from ..config.names import run_name
from ..config.options import RunOptions
from ..discovery.membership import Membership
from ..discovery.services import Services
from ..jobs.offers import FindMembers
from ..runtime.calls import JobCalls
from ..storage.files import Storage
from ..wire.addresses import Address, parse_address
from ..wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import PROTOCOL, GetManifest, ManifestIs, Welcome
from ..wire.run import KEY_BYTES, JobEntry, Manifest, RunAccess, read_manifest, run_id, sign_manifest
from ..wire.types import Seconds

STATE_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """A run this node takes part in."""

    access: RunAccess
    signed_manifest: bytes

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.signed_manifest)


class SavedRun(msgspec.Struct, frozen=True):
    """What the data directory keeps of a run, so that the same command resumes it."""

    access: str
    bootstrap: tuple[str, ...] = ()


def found_run(
    identity: Identity, name: str, private: bool, now: float, rng: random.Random, jobs: tuple[JobEntry, ...] = ()
) -> Run:
    manifest = Manifest(name, identity.peer_id, now, rng.randbytes(16), private=private, jobs=jobs)
    signed = sign_manifest(identity, manifest)
    key = rng.randbytes(KEY_BYTES) if private else b""
    return Run(RunAccess(run_id(signed), key), signed)


def check_protocol(manifest: Manifest) -> None:
    """Raises UsageError for a run of another protocol: its members sign and store other formats."""
    if manifest.protocol != PROTOCOL:
        raise UsageError(
            f"the run {manifest.name!r} was founded for protocol {manifest.protocol}, and this version of p2pnode "
            f"speaks {PROTOCOL}; go on with the version that founded it, or --found a new run"
        )


def save_run(storage: Storage, run: Run, bootstrap: tuple[str, ...]) -> None:
    storage.write(f"runs/{run.access.run}/manifest", run.signed_manifest)
    storage.write(STATE_FILE, msgspec.json.encode(SavedRun(str(run.access), bootstrap)))


def load_saved(storage: Storage) -> SavedRun | None:
    """The last run, or None where there is none or its file is damaged."""
    data = storage.read(STATE_FILE)
    if data is None:
        return None
    try:
        saved = msgspec.json.decode(data, type=SavedRun)
        RunAccess.parse(saved.access)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError):
        return None
    return saved


def same_bootstrap(options: RunOptions, saved: SavedRun) -> bool:
    """Whether the bootstrap addresses given, if any, are among those by which the saved run was joined."""
    return all(address.text in saved.bootstrap for address in options.bootstrap)


def bootstrap_of(options: RunOptions, storage: Storage) -> tuple[Address, ...]:
    """The addresses to join through: those given, else those of the saved run where that is resumed."""
    saved = None if options.found or options.access is not None else load_saved(storage)
    if options.bootstrap or saved is None:
        return options.bootstrap
    return tuple(parse_address(text) for text in saved.bootstrap)


def load_manifest(storage: Storage, access: RunAccess) -> bytes | None:
    """The saved manifest, if it is whole."""
    signed = storage.read(f"runs/{access.run}/manifest")
    return signed if signed is not None and run_id(signed) == access.run else None


def last_run(storage: Storage) -> tuple[RunAccess | None, Manifest | None]:
    """The last run and its manifest, each None where it is not there or not whole."""
    saved = load_saved(storage)
    access = None if saved is None else RunAccess.parse(saved.access)
    signed = None if access is None else load_manifest(storage, access)
    try:
        return access, None if signed is None else read_manifest(signed)
    except PeerMisbehaved:
        return access, None


def adopted_access(address: Address, welcome: Welcome) -> RunAccess:
    """The run that a bootstrap belongs to, for a node without --run; UsageError when it cannot be joined so."""
    if welcome.private:
        raise UsageError(f"the run at {address} is private; join with the code of an invite, which holds the key")
    if not welcome.run:
        raise UsageError(
            f"{address} is a meeting point for any run; join with the code of an invite, or --found a run there"
        )
    return RunAccess.parse(welcome.run)


async def ask_manifest(calls: JobCalls, peer: PeerId) -> bytes:
    """The run's signed manifest from one member, checked against the run id."""
    answer = await calls.ask(peer, GetManifest(), ManifestIs)
    manifest = read_manifest(answer.manifest)
    if run_id(answer.manifest) != calls.access.run:
        raise PeerMisbehaved(f"sent the manifest of another run ({manifest.name!r})")
    return answer.manifest


async def manifest_from_any(calls: JobCalls, peers: list[PeerId]) -> bytes | None:
    for peer in peers:
        try:
            return await ask_manifest(calls, peer)
        except (PeerError, NetworkDown):
            continue
    return None


RETRY_PAUSE: Seconds = 1.0
LONGEST_RETRY_PAUSE: Seconds = 15.0


FoundJobs = Callable[[], Awaitable[tuple[JobEntry, ...]]]
Admit = Callable[[Manifest, RunAccess, FindMembers], Awaitable[None]]


@dataclass(frozen=True)
class Entered:
    """A run, how the node got it, and the membership with which it stays there."""

    run: Run
    how: Literal["founded", "resumed", "joined"]
    membership: Membership


class RunJoining:
    """Gets one node its run. Keeps trying until somebody answers, unless `join_timeout` is set."""

    def __init__(
        self, options: RunOptions, services: Services, membership: Membership, found: FoundJobs, admit: Admit
    ) -> None:
        self._options = options
        self._found_jobs = found
        self._admit = admit
        self._services = services
        self._storage = services.seams.storage
        self._membership = membership

    async def enter(self) -> Entered:
        """Return the run and save it for the next start. UsageError or LocalProblem when there is no way in."""
        try:
            async with asyncio.timeout(self._options.join_timeout):
                run, how = await self._obtain()
        except TimeoutError:
            raise self._nobody_answered() from None
        self._membership.search.trouble = ""
        check_protocol(run.manifest)
        membership = self._membership.in_run(run.access.tag)
        if how != "founded":
            await self._admit(run.manifest, run.access, lambda: self._members(membership, run.access))
        save_run(self._storage, run, tuple(address.text for address in self._membership.me.bootstrap))
        return Entered(run, how, membership)

    def _nobody_answered(self) -> LocalProblem:
        trouble = self._membership.search.trouble
        return LocalProblem(
            f"could not join within {self._options.join_timeout:.0f} s"
            + (f" ({trouble})" if trouble else "")
            + "; check the address and that the other side runs, or leave out --join-timeout to keep trying"
        )

    async def _obtain(self) -> tuple[Run, Literal["founded", "resumed", "joined"]]:
        options = self._options
        access = options.access
        saved = None if options.found or access is not None else load_saved(self._storage)
        if saved is not None and same_bootstrap(options, saved):
            access = RunAccess.parse(saved.access)
        if access is None and (options.found or not options.bootstrap):
            return await self._found(), "founded"
        signed = None if access is None else load_manifest(self._storage, access)
        if access is not None and signed is not None:
            return Run(access, signed), "resumed"
        return await self._join(access or await self._ask_bootstrap()), "joined"

    async def _found(self) -> Run:
        options = self._options
        if options.bootstrap:
            await self._meet_someone()  # their swarm's time is ours
        name = options.name or run_name(self._membership.me.name)
        jobs = await self._found_jobs()
        now, rng = self._services.clock.now(), self._services.seams.rng
        return found_run(self._services.identity, name, options.private, now, rng, jobs)

    async def _ask_bootstrap(self) -> RunAccess:
        """Return the run of a bootstrap. One that is in a run counts before a meeting point for any run."""
        await self._meet_someone()
        welcomes = list(self._membership.search.welcomes.items())
        return adopted_access(*next((item for item in welcomes if item[1].run), welcomes[0]))

    async def _meet_someone(self) -> None:
        """Contact the bootstrap addresses until one of them answers."""
        async for _ in self._retries():
            await self._membership.contact_round()
            if self._membership.search.welcomes:
                return
            self._raise_if_all_wrong()
            self._report_searching("no bootstrap answers yet")

    async def _join(self, access: RunAccess) -> Run:
        """Find a member of the run and get its manifest."""
        services = self._services
        searching = self._membership.in_run(access.tag)
        calls = JobCalls(services.calls, access, services.identity.peer_id)
        async for _ in self._retries():
            signed = await manifest_from_any(calls, await self._members(searching, access))
            if signed is not None:
                return Run(access, signed)
            self._raise_if_all_wrong()
            self._report_searching(self._no_member_yet(access))
        raise AssertionError("retries never end")

    async def _members(self, searching: Membership, access: RunAccess) -> list[PeerId]:
        """Look for members of the run once; returns those worth asking."""
        await searching.contact_round()
        with contextlib.suppress(PeerError, NetworkDown):
            await searching.read_directory()
        return [peer.id for peer in self._services.table.to_try(access.tag)]

    def _no_member_yet(self, access: RunAccess) -> str:
        private = [address for address, welcome in self._membership.search.welcomes.items() if welcome.private]
        hint = f"; the run at {private[0].transport} is private: does --run lack its key?" if private else ""
        return f"no member of run {access.run} found yet{'' if access.private else hint}"

    @staticmethod
    async def _retries() -> AsyncIterator[None]:
        pause = RETRY_PAUSE
        while True:
            yield
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, LONGEST_RETRY_PAUSE)

    def _raise_if_all_wrong(self) -> None:
        """Raises UsageError when other peers answer at all bootstrap addresses; one right address is enough."""
        wrong = self._membership.search.wrong
        if self._options.bootstrap and all(address in wrong for address in self._options.bootstrap):
            address = self._options.bootstrap[0]
            raise UsageError(f"{address}: {wrong[address]}; ask for the address again")

    def _report_searching(self, what: str) -> None:
        search, events = self._membership.search, self._services.events
        text = f"{what} ({search.trouble}); still trying" if search.trouble else f"{what}; still trying"
        search.trouble = search.trouble or what
        latest = events.latest(1)
        if not latest or latest[0].text != text:
            events.say("searching", text)
