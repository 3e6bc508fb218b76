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
from ..jobs.offers import FindMembers
from ..runtime.calls import JobCalls
from ..storage.checked import read_checked, read_or_set_aside, set_aside, write_checked
from ..storage.files import Storage
from ..wire.addresses import Address, parse_address
from ..wire.errors import Damaged, LocalProblem, NetworkDown, PeerError, PeerMisbehaved, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import PROTOCOL, GetManifest, ManifestIs, Welcome
from ..wire.run import KEY_BYTES, JobEntry, Manifest, RunAccess, read_manifest, run_id, sign_manifest
from ..wire.types import Seconds, decoded
from .contact_report import BY_INVITE, BY_RUN, ContactReport, contact_reports, reports_in_words

STATE_FILE = "run.json"
COPIES = "runs"  # the folder of all runs; next to each run's own folder is a copy of what STATE_FILE said


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
    manifest: bytes
    bootstrap: tuple[str, ...] = ()

    @property
    def run(self) -> Run:
        return Run(RunAccess.parse(self.access), self.manifest)


_decoder = msgspec.json.Decoder(SavedRun)


def found_run(
    identity: Identity,
    name: str,
    private: bool,
    now: float,
    rng: random.Random,
    jobs: tuple[JobEntry, ...] = (),
    moderators: tuple[str, ...] | None = None,
) -> Run:
    """A new run. Its founder is the moderator unless others, or none, are named."""
    named = (identity.peer_id,) if moderators is None else moderators
    manifest = Manifest(name, identity.peer_id, now, rng.randbytes(16), private=private, jobs=jobs, moderators=named)
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
    """Save the run to go on with. It is written twice, so that each file can be made again from the other.

    A file that says so already is not written again: the same node starts on a full disk.
    """
    content = msgspec.json.encode(SavedRun(str(run.access), run.signed_manifest, bootstrap))
    for name in (_copy_of(run.access.run), STATE_FILE):
        if not _says(storage, name, content):
            write_checked(storage, name, content)


def _says(storage: Storage, name: str, content: bytes) -> bool:
    try:
        return read_checked(storage, name) == content
    except Damaged:
        return False


def _copy_of(run: str) -> str:
    return f"{COPIES}/{run}.json"


def load_saved(storage: Storage) -> SavedRun | None:
    """The run to go on with, from its copy where its file is damaged; None where there is none.

    Damaged when there is no copy, or several: only the user knows which of the runs is meant.
    """
    try:
        return _read(storage, STATE_FILE)
    except Damaged as problem:
        copies = _sound_copies(storage)
        if len(copies) == 1:
            return copies[0]
        runs = " or ".join(saved.run.access.run for saved in copies)
        remedy = f"choose its run by --run {runs}" if runs else "join its run again by an invite"
        raise Damaged(
            f"{problem}, so which run to go on with is not known; "
            f"restore the file from a backup, {remedy}, or --found a new run"
        ) from None


def repair_saved(storage: Storage, replaced: bool) -> None:
    """Rebuilds a damaged file of the saved run from the other one. Called when a node starts.

    A damaged file is set aside and reported. Damaged as `load_saved` raises it, unless the saved run is `replaced`,
    because the user names a run or founds one.
    """
    try:
        saved = _read(storage, STATE_FILE)
    except Damaged as problem:
        saved = None if replaced else load_saved(storage)
        set_aside(storage, STATE_FILE, str(problem), "it was made again from its copy" if saved else "it is not needed")
        if saved is not None:
            write_checked(storage, STATE_FILE, msgspec.json.encode(saved))
    if saved is not None:
        copy = _copy_of(saved.run.access.run)
        read_or_set_aside(storage, copy, _decode, f"it is made again from {STATE_FILE}")


def _read(storage: Storage, name: str) -> SavedRun | None:
    content = read_checked(storage, name)
    try:
        return None if content is None else _decode(content)
    except ValueError as error:
        raise Damaged(f"{storage.path(name)} is damaged ({error})") from None


def _decode(content: bytes) -> SavedRun:
    """ValueError unless the content is a run's whole description."""
    saved = decoded(_decoder, content, "saved run")
    try:
        fits = run_id(saved.manifest) == saved.run.access.run and saved.run.manifest is not None
    except (UsageError, PeerMisbehaved) as error:
        raise ValueError(str(error)) from None
    if not fits:
        raise ValueError("the manifest is that of another run")
    return saved


def _sound_copies(storage: Storage) -> list[SavedRun]:
    found = []
    for name in storage.names(COPIES):
        if name.endswith(".json"):
            with contextlib.suppress(Damaged):
                found.append(_read(storage, f"{COPIES}/{name}"))
    return [saved for saved in found if saved is not None]


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
    """The saved manifest of a run; None where it is not saved, or its file was damaged and is set aside."""
    lost = "members of the run are asked for what it said"
    saved = read_or_set_aside(storage, _copy_of(access.run), _decode, lost)
    return None if saved is None else saved.manifest


def last_run(storage: Storage) -> Run | None:
    """The run that a node on this storage goes on with; None where there is none, Damaged as `load_saved`."""
    saved = load_saved(storage)
    return None if saved is None else saved.run


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


class RunJobs(Protocol):
    """The jobs of a node (jobs.runner.JobRunner), as far as getting into a run concerns them."""

    async def found(self) -> tuple[JobEntry, ...]: ...
    async def check(self, manifest: Manifest | None, run: str = "") -> None: ...
    async def admit(self, manifest: Manifest, access: RunAccess, members: FindMembers) -> None: ...


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
        self._given = BY_RUN if options.invite is None else BY_INVITE
        self._sought: RunAccess | None = None  # the run whose members are looked for

    async def check(self) -> None:
        """Raises UsageError or LocalProblem for wrong options of the user, before the network starts.

        The jobs of a run that is to be founded here are made now.
        """
        here = self._saved_run()
        if here is not None:
            check_protocol(here.manifest)
            await self._jobs.check(here.manifest, here.access.run)
        elif self._founds:
            self._founded = await self._jobs.found()
        else:
            await self._jobs.check(None)

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
        membership = self._membership.in_run(run.access.tag)
        if how != "founded":
            await self._jobs.admit(run.manifest, run.access, lambda: self._members(membership, run.access))
        self._save(run, how)
        return Entered(run, how, membership)

    def _save(self, run: Run, how: Literal["founded", "resumed", "joined"]) -> None:
        """Save the run. On a full disk a resumed node goes on with what is saved."""
        try:
            save_run(self._storage, run, tuple(address.text for address in self._membership.me.bootstrap))
        except LocalProblem as problem:
            if how != "resumed":
                raise
            self._services.events.say("disk", f"the addresses to join through were not saved: {problem}", warning=True)

    def _could_not_join(self) -> UsageError | LocalProblem:
        """UsageError when every address answered that what the user gave is wrong."""
        reports = self._reports(self._sought)
        what = f"could not join within {self._options.join_timeout:.0f} s"
        what += f": no member of run {self._sought.run} found" if self._sought is not None else ""
        tried = reports_in_words(reports, self._given) or "no address has answered yet"
        if reports and all(report.final for report in reports):
            return UsageError(f"{what}: {tried}")
        return LocalProblem(f"{what}: {tried} (without --join-timeout it keeps trying)")

    def _reports(self, access: RunAccess | None) -> list[ContactReport]:
        """What came of contacting each address, those that the user gave first."""
        outcomes, given = self._membership.search.outcomes, self._options.bootstrap
        ordered = {address: outcomes[address] for address in (*given, *outcomes) if address in outcomes}
        return contact_reports(ordered, access, self._services.identity.peer_id, self._given)

    async def _obtain(self) -> tuple[Run, Literal["founded", "resumed", "joined"]]:
        here = self._saved_run()
        if here is not None:
            return here, "resumed"
        if self._founds:
            return await self._found(), "founded"
        return await self._join(self._options.access or await self._ask_bootstrap()), "joined"

    def _saved_run(self) -> Run | None:
        """The run to take part in, where it is saved here."""
        options = self._options
        if options.found:
            return None
        if options.access is not None:
            signed = load_manifest(self._storage, options.access)
            return None if signed is None else Run(options.access, signed)
        saved = load_saved(self._storage)
        return saved.run if saved is not None and same_bootstrap(options, saved) else None

    @property
    def _founds(self) -> bool:
        """Whether a node without a saved run founds one."""
        return self._options.found or (self._options.access is None and not self._options.bootstrap)

    async def _found(self) -> Run:
        options = self._options
        if options.bootstrap:
            await self._meet_someone()  # their swarm's time is ours
        name = options.name or run_name(self._membership.me.name)
        now, rng = self._services.clock.now(), self._services.seams.rng
        return found_run(self._services.identity, name, options.private, now, rng, self._founded, options.moderators)

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
            self._report_searching("no bootstrap answers yet", tries)

    async def _join(self, access: RunAccess) -> Run:
        """Find a member of the run and get its manifest."""
        services = self._services
        searching = self._membership.in_run(access.tag)
        calls = JobCalls(services.calls, access, services.identity.peer_id)
        self._sought = access
        async for tries in self._retries():
            signed = await manifest_from_any(calls, await self._members(searching, access))
            if signed is not None:
                return Run(access, signed)
            self._report_searching(f"no member of run {access.run} found yet", tries)
        raise AssertionError("retries never end")

    async def _members(self, searching: Membership, access: RunAccess) -> list[PeerId]:
        """Look for members of the run once; returns those worth asking."""
        await searching.contact_round()
        with contextlib.suppress(PeerError, NetworkDown):
            await searching.read_directory()
        return [peer.id for peer in self._services.table.to_try(access.tag)]

    @staticmethod
    async def _retries() -> AsyncIterator[int]:
        """The number of each try, with growing pauses between them."""
        pause = RETRY_PAUSE
        for tries in itertools.count(1):
            yield tries
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, LONGEST_RETRY_PAUSE)

    def _report_searching(self, what: str, tries: int) -> None:
        """Say what was tried: every time, since nobody knows which of the tries a user reads."""
        tried = reports_in_words(self._reports(self._sought), self._given)
        self._membership.search.trouble = f"{what}: {tried}" if tried else what
        self._services.events.say("searching", f"{self._membership.search.trouble}; still trying ({tries} so far)")
