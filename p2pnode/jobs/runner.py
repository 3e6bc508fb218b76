"""The jobs of one node: founds them, prepares and runs each in a task of its own, and keeps their ends apart."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn, TypeVar

from msgspec.structs import replace as changed

from ..config.options import JobOptions, Options
from ..config.settings import JOB_KEYS
from ..discovery.membership import Membership
from ..discovery.services import Services
from ..network.base import cancel_and_wait
from ..runtime.calls import JobCalls
from ..runtime.routes import Routes
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import LocalProblem, P2pnodeError, UsageError, near, suggestion, unwrap
from ..wire.ids import PeerId
from ..wire.invite import COMMAND
from ..wire.messages import JobAnnouncement
from ..wire.run import JobEntry, Manifest, RunAccess
from ..wire.status import MAIN_JOB, ExchangeRow, JobStatus, PeerState, Relation, ShardRow
from ..wire.types import Seconds
from .contract import Job, JobContext, JobKind, JobPace, JobSettings, job_folder
from .offers import Admission, Consent, FindMembers, nobody_to_ask
from .registry import KINDS, LOOP, load_files, load_kind
from .scheduler import JobCompute, Scheduler

NO_EXCHANGES: tuple[ExchangeRow, ...] = ()
NO_SHARDS: tuple[ShardRow, ...] = ()

T = TypeVar("T")


class JobRunner:
    """Runs the jobs of a run that this node takes part in.

    `jobs` are those that are prepared and did not fail; `ended` has the reasons of those that reached their goal or
    failed.
    """

    def __init__(self, services: Services, options: Options, consent: Consent = nobody_to_ask) -> None:
        self.jobs: dict[str, Job] = {}
        self.scheduler = Scheduler(services.seams.compute, services.seams.clock)
        self._services = services
        self._options = options
        self._consent = consent
        self._entries: dict[str, JobEntry] | None = None  # None: this node does not know its run yet
        self.ended: dict[str, str] = {}
        self._last: dict[str, JobStatus] = {}  # the status of jobs that failed
        self._faults: dict[str, asyncio.Future[NoReturn]] = {}  # mistakes of outside packages, found while asking jobs

    # ---- life ----

    async def found(self) -> tuple[JobEntry, ...]:
        """The jobs of a run founded here. UsageError when one cannot be done."""
        wanted, entries = self._options.founded_jobs(), []
        _check_names(self._options.only, [job.name for job in wanted])  # before anything is saved
        for job in wanted:
            with self._naming(job.name):
                kind = await self._load(job.kind)
                options = kind.read(self._settings(job.name, job.kind, len(wanted) == 1))
                entries.append(JobEntry(job.name, job.kind, await kind.found(options, self._services)))
        return tuple(entries)

    async def admit(self, manifest: Manifest, access: RunAccess, members: FindMembers) -> None:
        """Makes sure, before the node joins, that it has the files its jobs need; asks the user about them.

        UsageError or LocalProblem when none of its jobs can be done; of several, others end alone, later.
        """
        entries, problems = _chosen(manifest, self._options), []
        for entry in entries:
            files = load_files(entry.kind)
            if files is None:
                continue
            admission = Admission(
                manifest.name,
                entry.name,
                job_folder(access.run, entry.name),
                JobCalls(self._services.calls, access, self._services.identity.peer_id),
                members,
                self._services,
                self._consent,
            )
            try:
                await files.admit(entry.plan, self._settings(entry.name, entry.kind, len(entries) == 1), admission)
            except (UsageError, LocalProblem) as problem:
                problems.append(problem)
        if problems and len(problems) == len(entries):
            raise problems[-1]

    async def check(self, manifest: Manifest | None, run: str = "") -> None:
        """Look for what is wrong with the options before the network starts; UsageError or LocalProblem.

        `manifest` is None where the `run` is not known yet. Of several jobs, only those that the options name are
        compared with their plans: another one that cannot be done here ends alone, later.
        """
        options, seams = self._options, self._services.seams
        jobs = options.founded_jobs() if manifest is None else _chosen(manifest, options)
        if not (options.jobs or options.train.names_something) and (manifest is None or self._services.limiter.resting):
            return  # nothing was named that could be wrong, and torch takes long to import
        given = [job.name for job in (options.jobs if len(jobs) > 1 else jobs)]
        plans = {} if manifest is None else {entry.name: entry.plan for entry in manifest.jobs if entry.name in given}
        for job in jobs:
            with self._naming(job.name):
                kind = await self._load(job.kind)
                own = kind.read(self._settings(job.name, job.kind, len(jobs) == 1))
                check = partial(kind.check, plans.get(job.name), own, seams.storage, job_folder(run, job.name))
                await seams.compute(check)

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Adds the job's name to what is wrong with a --job, and the training option that may have been meant."""
        try:
            yield
        except UsageError as error:
            given = next((job.given for job in self._options.jobs if job.name == name), None)
            if given is None or f"job {name!r}" in str(error) or f"--job {name}" in str(error):
                raise
            slips = [near(key, JOB_KEYS) for key in given.get("task_options", {}) if f"no option {key!r}" in str(error)]
            raise UsageError(f"--job {name}: {error}{''.join(slips)}") from None

    def enter(self, manifest: Manifest) -> None:
        """Take part in a run: from now on the node announces which of its jobs it does."""
        self._entries = {entry.name: entry for entry in _chosen(manifest, self._options)}

    async def run(self, manifest: Manifest, access: RunAccess, membership: Membership) -> str:
        """Do all jobs until cancelled, or until each has ended; returns the reasons.

        Where there are several, a problem in one ends only that one. UsageError or LocalProblem when none is left.
        """
        entries = tuple((self._entries or {}).values())
        problems: dict[str, LocalProblem | UsageError] = {}
        async with asyncio.TaskGroup() as group:
            for entry in entries:
                group.create_task(self._run_apart(entry, manifest, access, membership, problems))
        if len(problems) == len(entries):
            raise list(problems.values())[-1]
        return "; ".join(self._named(name, reason) for name, reason in self.ended.items() if name not in problems)

    async def _run_apart(
        self,
        entry: JobEntry,
        manifest: Manifest,
        access: RunAccess,
        membership: Membership,
        problems: dict[str, LocalProblem | UsageError],
    ) -> None:
        """Run one job to its end. A problem of its own is noted in `problems` and costs no other job anything."""
        try:
            reason = await self._run_one(entry, manifest, access, membership)
        except Exception as error:
            problem = unwrap(error)
            if not isinstance(problem, LocalProblem | UsageError):
                if entry.kind in KINDS:
                    raise  # a mistake in this program must be seen; one of another package costs only its job
                problem = _package_problem(entry.kind, problem)
            problems[entry.name], reason = problem, str(problem)
            if entry.name in self.jobs:
                self._last[entry.name] = self._ask(entry.name, lambda job: job.status(), JobStatus())
                del self.jobs[entry.name]
        self.scheduler.remove(entry.name)
        self.ended[entry.name] = reason
        if self._several:
            failed = entry.name in problems
            self._services.events.say("job ended", f"{entry.name}: {reason}", warning=failed)
            if not failed:
                await self._save(entry.name)

    async def _run_one(self, entry: JobEntry, manifest: Manifest, access: RunAccess, membership: Membership) -> str:
        kind = await self._load(entry.kind)
        compute = self.scheduler.add(entry.name)
        context = JobContext(
            entry.name,
            self._services_for(entry.name, compute),
            JobCalls(self._services.calls, access, self._services.identity.peer_id, entry.name),
            membership,
            compute,
            PeerId(manifest.founder),
            manifest.created,
            manifest.moderators,
            not self._several,
        )
        options = kind.read(self._settings(entry.name, entry.kind, not self._several))
        self.jobs[entry.name] = job = await kind.prepare(entry.plan, options, context)
        return await (job.run() if entry.kind in KINDS else self._run_outside(entry.name, job))

    async def _run_outside(self, name: str, job: Job) -> str:
        """Run a job of an outside package until it ends, or raises where it is asked how it goes."""
        self._faults[name] = fault = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(job.run())
        try:
            await asyncio.wait((running, fault), return_when=asyncio.FIRST_COMPLETED)
            return fault.result() if fault.done() else running.result()
        finally:
            await cancel_and_wait(running)
            if not fault.cancel():
                fault.exception()  # now it was seen, also where the job ended in the same moment

    def _ask(self, name: str, ask: Callable[[Job], T], otherwise: T) -> T:
        """What a job answers; `otherwise` where an outside package raises, which ends its job and not the node."""
        try:
            return ask(self.jobs[name])
        except Exception as error:
            if (self._entries or {})[name].kind in KINDS:
                raise  # a mistake in this program must be seen
            fault = self._faults.get(name)
            if fault is not None and not fault.done():
                fault.set_exception(error)
            return otherwise

    def _ask_all(self, ask: Callable[[Job], T], otherwise: T) -> dict[str, T]:
        return {name: self._ask(name, ask, otherwise) for name in list(self.jobs)}

    def _settings(self, name: str, kind: str, alone: bool) -> JobSettings:
        """What the user wrote for a job; UsageError when that was meant for another kind of work."""
        given = next((job for job in self._options.jobs if job.name == name), JobOptions(name, kind))
        if given.kind != kind and given.kind == LOOP:
            raise UsageError(
                f"the members of this run do not train in loops of their own (its job {name!r} is of kind {kind!r}); "
                f"take part by `{COMMAND} CODE`, or found a run of your loop"
            )
        if given.kind != kind:
            raise UsageError(f"--job {name}: its kind is {kind!r} in this run, not {given.kind!r}; write kind={kind}")
        return JobSettings(name, given.given, self._options, alone)

    async def _load(self, kind: str) -> JobKind:
        """Off the loop: the first time it imports what the kind needs, which takes seconds for torch."""
        return await self._services.seams.compute(lambda: load_kind(kind))

    def _services_for(self, name: str, compute: JobCompute) -> Services:
        """The node's services with the job's share of compute; events name the job where there are several."""
        services = self._services
        events = services.events.about(name) if self._several else services.events
        return replace(services, seams=replace(services.seams, compute=compute), events=events)

    async def save(self, limit: Seconds) -> None:
        await asyncio.gather(*(self._save(name, limit) for name in list(self.jobs)))

    async def _save(self, name: str, limit: Seconds | None = None) -> None:
        try:
            with self._outside(name):
                await self.jobs[name].save(limit)
        except (LocalProblem, TimeoutError) as problem:
            text = f"progress of {name} was not saved: {str(problem) or 'that took too long'}"
            self._services.events.say("disk", text, warning=True)

    async def hand_over(self) -> None:
        for name in list(self.jobs):
            try:
                with self._outside(name):
                    await self.jobs[name].hand_over(self._options.run.leave_timeout)
            except LocalProblem as problem:
                self._services.events.say("shards", f"{name} handed nothing over: {problem}", warning=True)

    @contextlib.contextmanager
    def _outside(self, name: str) -> Iterator[None]:
        """Makes a LocalProblem of what goes wrong in the package of a job."""
        kind = (self._entries or {})[name].kind
        try:
            yield
        except (P2pnodeError, TimeoutError):
            raise
        except Exception as error:
            if kind in KINDS:
                raise
            raise _package_problem(kind, error) from None

    # ---- for peers ----

    def file(self, run: str, name: str) -> bytes | None:
        """The file that a job needs, for those who join; None where it is not here."""
        entry = (self._entries or {}).get(name)
        files = None if entry is None else load_files(entry.kind)
        if entry is None or files is None:
            return None
        return files.offered(entry.plan, self._services.seams.storage, job_folder(run, name))

    def routes(self, name: str) -> Routes | None:
        """What peers may ask of a job; None where it is not done here, or not yet."""
        job = self.jobs.get(name)
        return None if job is None else job.routes

    def prepares(self, name: str) -> bool:
        """Whether a job is done here and is not ready yet."""
        return name in self.names and name not in self.jobs and name not in self.ended

    def announcements(self) -> tuple[JobAnnouncement, ...] | None:
        """What the node announces of its jobs; None while it does not know its run."""
        circle = self._options.train.circle
        if self._entries is None:
            return (JobAnnouncement(MAIN_JOB, circle),) if circle else None
        going = [name for name in self._entries if name not in self._last]
        return tuple(
            self._ask(name, lambda job: job.announcement(), JobAnnouncement(name, circle))
            if name in self.jobs
            else JobAnnouncement(name, circle)
            for name in going
        )

    # ---- for people ----

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs this node takes part in."""
        return tuple(self._entries or ())

    @property
    def unreplicated(self) -> int:
        return sum(self._ask_all(lambda job: job.unreplicated, 0).values())

    def paces(self) -> dict[str, JobPace | None]:
        """How much each job that goes on has done; None for one that is not prepared yet, nothing for the unwatched."""
        going = [name for name in self.names if name not in self.ended]
        prepared = {name: self._ask(name, lambda job: job.pace(), None) for name in going if name in self.jobs}
        watched = [name for name in going if name not in prepared or prepared[name] is not None]
        return {name: prepared.get(name) for name in watched}

    def status(self) -> dict[str, JobStatus]:
        """Every job of the run this node takes part in, in the manifest's order."""
        return {name: self._status(entry) for name, entry in (self._entries or {}).items()}

    def _status(self, entry: JobEntry) -> JobStatus:
        name, job, paused = entry.name, self.jobs.get(entry.name), self._services.limiter.resting
        last = self._last.get(name, JobStatus())
        reported = last if job is None else self._ask(name, lambda job: job.status(), last)
        if name in self.ended:
            return changed(reported, kind=entry.kind, condition="ended", reason=self.ended[name])
        condition, reason = ("paused" if paused else "running"), paused
        if job is None:
            condition, reason = "waiting", "it is being prepared"
        share = self.scheduler.share(name)
        return changed(reported, kind=entry.kind, condition=condition, reason=reason, compute_share=share)

    def describe(self, peers: tuple[PeerState, ...]) -> tuple[PeerState, ...]:
        """The same peers with what the jobs know of them."""
        if not self._several:
            for name in self.jobs:
                peers = self._ask(name, lambda job: tuple(job.describe(peers)), peers)  # noqa: B023 (called at once)
            return peers
        described = self._ask_all(lambda job: tuple(job.describe(peers)), peers)
        return tuple(
            _joined(peer, {name: found[place] for name, found in described.items()}) for place, peer in enumerate(peers)
        )

    def exchanges(self) -> Iterable[ExchangeRow]:
        label = self._several  # of one job there is nothing to tell apart
        found = self._ask_all(lambda job: tuple(job.exchanges()), NO_EXCHANGES)
        return (changed(row, job=name) if label else row for name, rows in found.items() for row in rows)

    def shard_rows(self) -> tuple[ShardRow, ...]:
        found = self._ask_all(lambda job: tuple(job.shard_rows()), NO_SHARDS)
        return tuple(changed(row, job=name) for name, rows in found.items() for row in rows)

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user commands of one job; LocalProblem or UsageError when that cannot be done."""
        wanted = request.job.partition("/")[0]  # JOB/MODEL names one model of a job that has several
        if wanted and wanted not in self.names:
            raise UsageError(f"this node has no job {request.job[:60]!r}; {suggestion(request.job, self.names)}")
        trains = (name for name, job in self.jobs.items() if job.model is not None)
        name = wanted or next(trains, "") or next(iter(self.names), "")
        if name in self.ended and name not in self.jobs:
            raise LocalProblem(f"the job {name!r} has ended: {self.ended[name]}")
        if name not in self.jobs:
            raise LocalProblem("this node does not learn, or not yet; try again when it does")
        with self._outside(name):
            return await self.jobs[name].execute(request)

    @property
    def _several(self) -> bool:
        return len(self._entries or ()) > 1

    def _named(self, name: str, reason: str) -> str:
        return f"{name}: {reason}" if self._several else reason


def _joined(peer: PeerState, described: dict[str, PeerState]) -> PeerState:
    """A peer as several jobs describe it."""
    states = {name: found.jobs[name] for name, found in described.items() if name in found.jobs}
    relations = {name: Relation(found.community, found.similarity, found.reason) for name, found in described.items()}
    first = next(iter(relations.values()), Relation())
    known = changed(peer, jobs={**peer.jobs, **states}, relations=relations)
    return changed(known, community=first.community, similarity=first.similarity, reason=first.reason)


def _chosen(manifest: Manifest, options: Options) -> list[JobEntry]:
    """The jobs of a run that this node's user wants to take part in; UsageError when there is no such job."""
    if options.role != "node" or options.run.meet_only:
        return []
    names = [entry.name for entry in manifest.jobs]
    _check_names((*options.only, *(job.name for job in options.jobs)), names)
    if not names and options.train.task is not None:
        raise UsageError(f"--task {options.train.task} contradicts the run, which learns nothing; --found a new run")
    return [entry for entry in manifest.jobs if not options.only or entry.name in options.only]


def _package_problem(kind: str, error: BaseException) -> LocalProblem:
    """What went wrong in the package of a kind of work, and where, in one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return LocalProblem(f"the package of the job kind {kind!r} failed: {said} ({place.filename}:{place.lineno})")


def _check_names(wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise UsageError(f"the run has no job {name!r}; {suggestion(name, names)}")
