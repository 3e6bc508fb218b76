"""The jobs of one node: founds them, prepares and runs each in a task of its own, and keeps their ends apart."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from msgspec.structs import replace as changed

from ..config.options import JobOptions, Options
from ..config.settings import JOB_KEYS
from ..discovery.membership import Membership
from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..runtime.routes import Routes
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import LocalProblem, UsageError, near, suggestion, unwrap
from ..wire.ids import PeerId
from ..wire.messages import JobAnnouncement
from ..wire.run import JobEntry, Manifest, RunAccess
from ..wire.status import MAIN_JOB, ExchangeRow, JobStatus, PeerState, Relation, ShardRow
from ..wire.types import Seconds
from .contract import Job, JobContext, JobKind, JobPace, JobSettings, job_folder
from .offers import Admission, Consent, FindMembers, nobody_to_ask
from .registry import KINDS, load_files, load_kind
from .scheduler import JobCompute, Scheduler


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
        """Before the node joins: see that it has the files its jobs need, or asks the user about them.

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
            job = self.jobs.pop(entry.name, None)
            if job is not None:
                self._last[entry.name] = job.status()
        self.scheduler.remove(entry.name)
        self.ended[entry.name] = reason
        if self._several:
            failed = entry.name in problems
            self._services.events.say("job ended", f"{entry.name}: {reason}", warning=failed)
            if not failed:
                await self._save(self.jobs[entry.name])

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
        )
        options = kind.read(self._settings(entry.name, entry.kind, not self._several))
        self.jobs[entry.name] = job = await kind.prepare(entry.plan, options, context)
        return await job.run()

    def _settings(self, name: str, kind: str, alone: bool) -> JobSettings:
        """What the user wrote for a job; UsageError when that was meant for another kind of work."""
        given = next((job for job in self._options.jobs if job.name == name), JobOptions(name, kind))
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
        await asyncio.gather(*(self._save(job, limit) for job in self.jobs.values()))

    async def _save(self, job: Job, limit: Seconds | None = None) -> None:
        try:
            await job.save(limit)
        except (LocalProblem, TimeoutError) as problem:
            text = f"progress of {job.name} was not saved: {str(problem) or 'that took too long'}"
            self._services.events.say("disk", text, warning=True)

    async def hand_over(self) -> None:
        for job in self.jobs.values():
            await job.hand_over(self._options.run.leave_timeout)

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
            self.jobs[name].announcement() if name in self.jobs else JobAnnouncement(name, circle) for name in going
        )

    # ---- for people ----

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs this node takes part in."""
        return tuple(self._entries or ())

    @property
    def unreplicated(self) -> int:
        return sum(job.unreplicated for job in self.jobs.values())

    def pace(self) -> JobPace | None:
        """Of all jobs together that are watched; None while none is prepared."""
        going = [job.pace() for name, job in self.jobs.items() if name not in self.ended]
        paces = [pace for pace in going if pace is not None]
        if not paces:
            return JobPace(0, 0, 0.0) if going else None
        return JobPace(
            sum(p.steps for p in paces), sum(p.samples for p in paces), min(p.steps_per_second for p in paces)
        )

    def status(self) -> dict[str, JobStatus]:
        """Every job of the run this node takes part in, in the manifest's order."""
        return {name: self._status(entry) for name, entry in (self._entries or {}).items()}

    def _status(self, entry: JobEntry) -> JobStatus:
        name, job, paused = entry.name, self.jobs.get(entry.name), self._services.limiter.resting
        reported = job.status() if job is not None else self._last.get(name, JobStatus())
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
            for job in self.jobs.values():
                peers = job.describe(peers)
            return peers
        described = {name: job.describe(peers) for name, job in self.jobs.items()}
        return tuple(
            _joined(peer, {name: found[place] for name, found in described.items()}) for place, peer in enumerate(peers)
        )

    def exchanges(self) -> Iterable[ExchangeRow]:
        label = self._several  # of one job there is nothing to tell apart
        return (changed(row, job=name) if label else row for name, job in self.jobs.items() for row in job.exchanges())

    def shard_rows(self) -> tuple[ShardRow, ...]:
        return tuple(changed(row, job=name) for name, job in self.jobs.items() for row in job.shard_rows())

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user commands of one job; LocalProblem or UsageError when that cannot be done."""
        if request.job and request.job not in self.names:
            raise UsageError(f"this node has no job {request.job[:60]!r}; {suggestion(request.job, self.names)}")
        trains = (name for name, job in self.jobs.items() if job.model is not None)
        name = request.job or next(trains, "") or next(iter(self.names), "")
        if name in self.ended and name not in self.jobs:
            raise LocalProblem(f"the job {name!r} has ended: {self.ended[name]}")
        if name not in self.jobs:
            raise LocalProblem("this node does not learn, or not yet; try again when it does")
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
