"""What is simulated, as a value: equal scenarios give equal traces."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..circles.advice import MAX_CIRCLE
from ..config.options import (
    DEFAULT_POLICY,
    DEFAULT_ROUND_SECONDS,
    DEFAULT_TASK,
    TRAIN,
    JobOptions,
    Options,
    RunOptions,
    SimOptions,
    TrainOptions,
)
from ..config.resolve import read_simulation
from ..config.settings import Setting, read_jobs
from ..config.split import Split, SplitPart
from ..merging.registry import check_settings
from ..network.sim import Fault, Links, churn_faults
from ..similarity.partners import RANGES, partner_settings, without_partner_settings
from ..wire.addresses import Address
from ..wire.errors import UsageError
from ..wire.ids import Identity, sha256
from ..wire.status import MAIN_JOB
from ..wire.types import Seconds

EPOCH = 1_800_000_000.0  # the time that a correct clock shows at virtual time 0
BY_ITSELF = 0
MEETING: Seconds = 120.0  # how long a swarm that only meets is simulated
SPREAD: Seconds = 10.0  # nodes start within this time, or a longer one where that would be too many at once
ARRIVALS = 6.4  # nodes a second, at most: larger crowds clog the links of the nodes that keep the directory
LIMIT = 4.0  # times the usual length: then a simulation ends whether or not all nodes are done
SIMULATED = TrainOptions(
    task="digits", device="cpu", no_model_swaps=True, full_speed=True
)  # what simulated nodes train by default


@dataclass(frozen=True)
class SimTraining:
    """What the nodes of a scenario train.

    Times are declared, not measured: a node of speed 1 does `mean_steps` local steps in a round.
    """

    options: TrainOptions = SIMULATED  # `split` says how the data are dealt out; iid when it is None
    rounds: int = 100  # the simulation ends when every node has done this many
    alone: int = 0  # this many nodes, evenly chosen, are trained alone as well, for comparison
    circle: int = BY_ITSELF  # declared: nodes 0 to circle - 1 share a delta set, the next `circle` another, and so on
    speeds: tuple[float, float] = (1.0, 1.0)  # between which each node's speed is drawn
    mean_steps: float = 10.0
    jobs: tuple[JobOptions, ...] = ()  # several jobs, for all of which `options` hold too; empty: one

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the jobs."""
        return tuple(job.name for job in self.jobs) or (MAIN_JOB,)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the jobs that train."""
        return tuple(job.name for job in self.jobs if job.kind == TRAIN) if self.jobs else (MAIN_JOB,)

    @property
    def what(self) -> str:
        """The names of the tasks that are trained."""
        return ", ".join(dict.fromkeys(self.job_options(name).task or DEFAULT_TASK for name in self.trained))

    @property
    def policy(self) -> str:
        return self.options.policy or DEFAULT_POLICY

    @property
    def round_seconds(self) -> Seconds:
        return self.options.round_seconds or DEFAULT_ROUND_SECONDS

    @property
    def split(self) -> Split:
        return self.options.split or Split()

    @property
    def usual_seconds(self) -> Seconds:
        """How long the rounds take once all are there, give or take a little, when nothing goes wrong."""
        return 10.0 + 1.05 * self.rounds * self.round_seconds

    def options_of(self, index: int, peers: int, seed: int) -> TrainOptions:
        """The training options of one node: its part of the data, and its circle if circles are declared."""
        part, circle = SplitPart(index, peers, seed), self.circle_of(index)
        return replace(self.options, split=self.split, part=part, circle=circle)

    def job_options(self, name: str) -> TrainOptions:
        """The options of one train job, the same for all nodes."""
        return Options(train=self.options, jobs=self.jobs).train_options(name, alone=len(self.names) == 1)

    def circle_of(self, index: int) -> str:
        """The circle a node is declared to be in; "" when nodes find their circles themselves."""
        return f"circle {index // self.circle}" if self.circle else ""

    def speed_of(self, seed: int, index: int) -> float:
        """Local steps a second of a node."""
        low, high = self.speeds
        drawn = random.Random(f"speed {seed} {index}").random()
        factor = low * math.exp(drawn * math.log(high / low))
        return factor * self.mean_steps / self.round_seconds


@dataclass(frozen=True)
class Scenario:
    """What is simulated. Node 0 founds the run; the others get its address, and start within `spread` seconds."""

    peers: int = 16
    seed: int = 0
    seconds: Seconds = MEETING  # with training: at most
    links: Links = field(default_factory=Links)
    faults: tuple[Fault, ...] = ()
    skew: Mapping[int, Seconds] = field(default_factory=dict)  # by how much each node's clock is wrong
    spread: Seconds = SPREAD
    sample_every: Seconds = 10.0  # 0: never
    keep_trace: int = 0
    restart_after: Seconds = 0.0  # a node that ended with a LocalProblem starts again, as under systemd; 0: it does not
    adjust: Callable[[Options, int, int], Options] = lambda options, index, starts: options  # for single nodes
    training: SimTraining | None = None  # None: the nodes only meet

    def options_of(self, index: int, bootstrap: tuple[Address, ...], starts: int) -> Options:
        """The options of one node at its `starts`-th start."""
        run = RunOptions(
            bootstrap=bootstrap, name=f"sim {identity_of(self.seed, 0).peer_id[-4:]}", meet_only=self.training is None
        )
        train = TrainOptions()
        if self.training is not None:
            train = self.training.options_of(index, self.peers, self.seed)
        jobs = () if self.training is None else self.training.jobs
        return self.adjust(Options(name=f"n{index}", run=run, train=train, jobs=jobs), index, starts)

    def describe(self) -> str:
        """What is simulated, in a few words."""
        training = self.training
        if training is None:
            return f"{self.peers} nodes met, seed {self.seed}"
        if not training.trained:
            return f"{self.peers} nodes did {', '.join(training.names)}, seed {self.seed}"
        what = f"{self.peers} nodes trained {training.what} with {training.policy}"
        return f"{what}, {training.split}, {training.rounds} rounds, seed {self.seed}"

    def facts(self) -> dict[str, object]:
        """What a recording says about the plan."""
        facts: dict[str, object] = {"peers": self.peers, "seed": self.seed, "seconds": self.seconds}
        facts |= {"latency": self.links.latency, "rate": self.links.rate if self.links.rate < math.inf else None}
        facts |= {"loss": self.links.loss, "faults": len(self.faults)}
        training = self.training
        if training is not None:
            options = training.options.with_defaults()
            facts |= {"task": options.task, "options": dict(options.task_options), "split": str(training.split)}
            facts |= {"policy": options.policy, "settings": dict(options.settings), "rounds": training.rounds}
            facts |= {"aim": options.aim, "circle": training.circle, "speeds": training.speeds}
            facts |= {"mean_steps": training.mean_steps, "share_data": options.share_data}
            facts |= {"model_swaps": not options.no_model_swaps}
            if training.jobs:
                facts["jobs"] = {job.name: job.given.get("task") for job in training.jobs}
        return facts


def read_scenario(
    given: Mapping[str, object],
    task: str | TrainOptions | None,
    jobs: Mapping[str, str | Mapping[str, Any]] | None = None,
    label: Callable[[Setting], str] = lambda item: item.field.rpartition(".")[2],
    job: JobOptions | None = None,
) -> Scenario:
    """The scenario that options by field name describe; UsageError in one line, in which `label` names an option."""
    sim, train = read_simulation(given, label)
    several = () if jobs is None else read_jobs([_job_table(name, one) for name, one in jobs.items()])
    several = several if job is None else (*several, job)
    if several and task is not None:
        raise UsageError(f"task contradicts {'jobs' if job is None else 'job'}; name each task there")
    task = SIMULATED if several else task
    if task is None and (wrong := [name for name in given if name in (*train, "rounds", "circle", "speeds", "alone")]):
        raise UsageError(f"{wrong[0]} is about training; name what is trained, as in task='digits', or leave it out")
    return make_scenario(sim, None if task is None else training_of(task, train, sim, several))


def _job_table(name: str, job: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, **({"task": job} if isinstance(job, str) else job)}


def training_of(
    task: str | TrainOptions, given: Mapping[str, Any], sim: SimOptions, jobs: tuple[JobOptions, ...] = ()
) -> SimTraining:
    """What simulated nodes train: `task` with the options given with it. UsageError when the two contradict."""
    options = task if isinstance(task, TrainOptions) else replace(SIMULATED, task=task)
    for name, value in given.items():
        chosen = getattr(options, name)
        if value != chosen and chosen not in (getattr(SIMULATED, name), getattr(TrainOptions(), name)):
            raise UsageError(f"{name} is {value} here and {chosen} in the options of the task; give it once")
    return SimTraining(replace(options, **given), sim.rounds, sim.alone, sim.circle, sim.speeds, jobs=jobs)


def make_scenario(sim: SimOptions, training: SimTraining | None) -> Scenario:
    """The scenario that simulation options describe, with its crashes drawn and its length fixed."""
    links = Links(sim.latency, 0.4 * sim.latency, sim.rate or math.inf, sim.loss, sim.duplicate, sim.reorder)
    spread = max(SPREAD, sim.peers / ARRIVALS)
    usual = MEETING if training is None else spread + training.usual_seconds
    limit = sim.seconds or (MEETING if training is None else LIMIT * usual)
    busy = limit if training is None else usual
    rng = random.Random(f"churn {sim.seed}")
    crashes = churn_faults(rng, range(1, sim.peers), sim.churn, 0.2 * busy, 0.4 * busy)
    return Scenario(sim.peers, sim.seed, limit, links, tuple(crashes), spread=spread, training=training)


def identity_of(seed: int, index: int) -> Identity:
    """The identity of a node of a simulated swarm."""
    return Identity(sha256(f"p2pnode simulation {seed} node {index}".encode()))


MAX_PEERS = 10_000
MAX_ROUNDS = 1_000_000


def check_scenario(scenario: Scenario) -> None:
    """Raises UsageError for a scenario that cannot be run."""
    if not 1 <= scenario.peers <= MAX_PEERS:
        raise UsageError(f"--peers {scenario.peers} must lie between 1 and {MAX_PEERS:,}")
    if scenario.training is not None:
        for name in scenario.training.trained:
            options = scenario.training.job_options(name)
            _check_training(scenario.training, options)
            _check_data(options, scenario.training.split, scenario.peers, scenario.seed)


def _check_training(training: SimTraining, options: TrainOptions) -> None:
    if not BY_ITSELF <= training.circle <= MAX_CIRCLE:
        raise UsageError(
            f"--circle {training.circle} must lie between 1 and {MAX_CIRCLE}, or be 0: nodes find their own"
        )
    if not 1 <= training.rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {training.rounds} must lie between 1 and {MAX_ROUNDS:,}")
    policy, settings = options.policy or DEFAULT_POLICY, options.settings
    try:
        partner_settings(settings)
    except ValueError as error:
        raise UsageError(f"--set {error}") from None
    try:
        check_settings(policy, without_partner_settings(settings), besides=RANGES)
    except ValueError as error:
        raise UsageError(f"--policy {policy[:40]}: {error}") from None


def _check_data(options: TrainOptions, split: Split, peers: int, seed: int) -> None:
    from ..shards.split import check_stream_split, part_rows
    from ..tasks.data import as_data  # torch
    from ..tasks.errors import task_errors
    from ..tasks.find import load_task
    from ..tasks.task import labels_of

    source = None if options.data is None else str(options.data)
    task = load_task(options.task or DEFAULT_TASK, options.task_options, source)
    with task_errors(task, "data"):
        data = as_data(task.data())
        labels = labels_of(task, data)
    if data.is_stream:
        check_stream_split(split)
        return
    part_rows(labels, len(data), split, SplitPart(0, peers, seed))
