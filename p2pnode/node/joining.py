"""How a node gets its run: founds one, resumes the saved one, or joins the one a bootstrap or an invite names."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from ..config.names import run_name
from ..config.options import RunOptions
from ..discovery.membership import Membership
from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..storage.files import Storage
from ..wire.addresses import Address, parse_address
from ..wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import PROTOCOL, GetManifest, ManifestIs, Welcome
from ..wire.run import KEY_BYTES, JobEntry, Manifest, RunAccess, read_manifest, run_id, sign_manifest
from ..wire.types import Seconds
from .contact_report import ContactReport, contact_reports, in_words

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
        raise UsageError(f"the run at {address} is private; paste the founder's whole invite: its --run has the key")
    if not welcome.run:
        raise UsageError(
            f"{address} is a meeting point for any run; "
            "add --run from the founder's invite, or --found to found one there"
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


class RunJobs(Protocol):
    """The jobs of a node (jobs.runner.JobRunner), as far as getting into a run concerns them."""

    async def found(self) -> tuple[JobEntry, ...]: ...
    async def check(self, manifest: Manifest | None) -> None: ...


@dataclass(frozen=True)
class Entered:
    """A run, how the node got it, and the membership with which it stays there."""

    run: Run
    how: Literal["founded", "resumed", "joined"]
    membership: Membership


class RunJoining:
    """Gets one node its run. Keeps trying until somebody answers, unless `join_timeout` is set."""

    def __init__(self, options: RunOptions, services: Services, membership: Membership, jobs: RunJobs) -> None:
        self._options = options
        self._jobs = jobs
        self._founded: tuple[JobEntry, ...] = ()  # the jobs of a run that is to be founded here
        self._services = services
        self._storage = services.seams.storage
        self._membership = membership
        self._sought: RunAccess | None = None  # the run whose members are looked for

    async def check(self) -> None:
        """Before the network starts: UsageError or LocalProblem for what is wrong with the user's options.

        The jobs of a run that is to be founded here are made now.
        """
        access = self._known_access()
        if self._founds(access):
            self._founded = await self._jobs.found()
            return
        signed = None if access is None else load_manifest(self._storage, access)
        manifest = None if signed is None else read_manifest(signed)
        if manifest is not None:
            check_protocol(manifest)
        await self._jobs.check(manifest)

    async def enter(self) -> Entered:
        """Return the run and save it for the next start. UsageError or LocalProblem when there is no way in.

        Comes after `check`, and needs the network.
        """
        try:
            async with asyncio.timeout(self._options.join_timeout):
                run, how = await self._obtain()
        except TimeoutError:
            raise self._could_not_join() from None
        self._membership.search.trouble = ""
        check_protocol(run.manifest)
        save_run(self._storage, run, tuple(address.text for address in self._membership.me.bootstrap))
        return Entered(run, how, self._membership.in_run(run.access.tag))

    def _could_not_join(self) -> UsageError | LocalProblem:
        """UsageError when every address answered that what the user gave is wrong."""
        reports = self._reports(self._sought)
        what = f"could not join within {self._options.join_timeout:.0f} s"
        what += f": no member of run {self._sought.run} found" if self._sought is not None else ""
        tried = in_words(reports) or "no address has answered yet"
        if reports and all(report.final for report in reports):
            return UsageError(f"{what}: {tried}")
        remedy = "check the address and that the other side runs, or leave out --join-timeout to keep trying"
        return LocalProblem(f"{what}: {tried}; {remedy}")

    def _reports(self, access: RunAccess | None) -> list[ContactReport]:
        """What came of contacting each address, those that the user gave first."""
        outcomes, given = self._membership.search.outcomes, self._options.bootstrap
        ordered = {address: outcomes[address] for address in (*given, *outcomes) if address in outcomes}
        return contact_reports(ordered, access, self._services.identity.peer_id)

    async def _obtain(self) -> tuple[Run, Literal["founded", "resumed", "joined"]]:
        access = self._known_access()
        if self._founds(access):
            return await self._found(), "founded"
        signed = None if access is None else load_manifest(self._storage, access)
        if access is not None and signed is not None:
            return Run(access, signed), "resumed"
        return await self._join(access or await self._ask_bootstrap()), "joined"

    def _known_access(self) -> RunAccess | None:
        """The run that the user names, or that is saved and to be resumed; None where it must be founded or asked."""
        options = self._options
        saved = None if options.found or options.access is not None else load_saved(self._storage)
        if saved is not None and same_bootstrap(options, saved):
            return RunAccess.parse(saved.access)
        return options.access

    def _founds(self, access: RunAccess | None) -> bool:
        return access is None and (self._options.found or not self._options.bootstrap)

    async def _found(self) -> Run:
        options = self._options
        if options.bootstrap:
            await self._meet_someone()  # their swarm's time is ours
        name = options.name or run_name(self._membership.me.name)
        now, rng = self._services.clock.now(), self._services.seams.rng
        return found_run(self._services.identity, name, options.private, now, rng, self._founded)

    async def _ask_bootstrap(self) -> RunAccess:
        """Return the run of a bootstrap. One that is in a run counts before a meeting point for any run."""
        await self._meet_someone()
        welcomes = list(self._membership.search.welcomes.items())
        return adopted_access(*next((item for item in welcomes if item[1].run), welcomes[0]))

    async def _meet_someone(self) -> None:
        """Contact the bootstrap addresses until one of them answers."""
        async for tries in self._retries():
            await self._membership.contact_round()
            if self._membership.search.welcomes:
                return
            self._raise_if_all_wrong()
            self._report_searching("no bootstrap answers yet", tries)

    async def _join(self, access: RunAccess) -> Run:
        """Find a member of the run and get its manifest."""
        services = self._services
        searching = self._membership.in_run(access.tag)
        calls = JobCalls(services.calls, access, services.identity.peer_id)
        self._sought = access
        async for tries in self._retries():
            await searching.contact_round()
            with contextlib.suppress(PeerError, NetworkDown):
                await searching.read_directory()
            members = [peer.id for peer in services.table.to_try(access.tag)]
            signed = await manifest_from_any(calls, members)
            if signed is not None:
                return Run(access, signed)
            self._raise_if_all_wrong()
            self._report_searching(f"no member of run {access.run} found yet", tries)
        raise AssertionError("retries never end")

    @staticmethod
    async def _retries() -> AsyncIterator[int]:
        """The number of each try, with growing pauses between them."""
        pause = RETRY_PAUSE
        for tries in itertools.count(1):
            yield tries
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, LONGEST_RETRY_PAUSE)

    def _raise_if_all_wrong(self) -> None:
        """Raises UsageError when other peers answer at all bootstrap addresses; one right address is enough."""
        outcomes = [self._membership.search.outcomes.get(address) for address in self._options.bootstrap]
        if outcomes and all(isinstance(outcome, PeerMisbehaved) for outcome in outcomes):
            raise UsageError(f"{self._options.bootstrap[0]}: {outcomes[0]}; ask for the address again")

    def _report_searching(self, what: str, tries: int) -> None:
        """Say what was tried: every time, since nobody knows which of the tries a user reads."""
        tried = in_words(self._reports(self._sought))
        self._membership.search.trouble = f"{what}: {tried}" if tried else what
        self._services.events.say("searching", f"{self._membership.search.trouble}; still trying ({tries} so far)")
