"""How an actors job goes, as the figures and tables that every view shows: all laptops, at any node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...wire.ids import PeerId
from ...wire.status import Figure, FigureValue, JobState, JobStatus, JobTable, PeerState
from ...wire.types import Seconds
from .messages import CURVE, LaptopFacts

if TYPE_CHECKING:
    from .job import ActorsJob

COLUMNS = (
    ("laptop", "peer"), ("task", ""), ("return", ""), ("over time", ""), ("steps", ""), ("steps a second", ""),
    ("critic version", ""), ("values in time", "share"), ("critic", ""), ("heard", "s"),
)  # fmt: skip
BARS = "▁▂▃▄▅▆▇█"
FORGET: Seconds = 600.0  # a laptop that was not heard of for so long is not shown


class ReturnCurve:
    """A laptop's return over its whole life in a bounded number of points: the finer, the younger it is."""

    def __init__(self, most: int = CURVE) -> None:
        self._most = most
        self._each = 1  # values in a point
        self._points: list[float] = []
        self._part: list[float] = []  # values of the point to come

    def add(self, value: float) -> None:
        self._part.append(value)
        if len(self._part) < self._each:
            return
        self._points.append(sum(self._part) / len(self._part))
        self._part = []
        if len(self._points) == 2 * self._most:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(one + other) / 2 for one, other in pairs]
            self._each *= 2

    def points(self) -> tuple[float, ...]:
        """At most `most` points, the latest last."""
        points = self._points
        if len(points) <= self._most:
            return tuple(points)
        starts = [place * len(points) // self._most for place in range(self._most + 1)]
        return tuple(sum(points[one:other]) / (other - one) for one, other in pairwise(starts))


def bars(points: Sequence[float]) -> str:
    """A curve as one line of text, from its lowest to its highest point."""
    if not points:
        return ""
    low, high = min(points), max(points)
    if high <= low:
        return BARS[0] * len(points)
    return "".join(BARS[min(len(BARS) - 1, int((point - low) / (high - low) * len(BARS)))] for point in points)


def actors_status(job: ActorsJob, now: Seconds) -> JobStatus:
    """The whole status of an actors job at this node."""
    me, own = job.context.services.identity.peer_id, job.own_facts()
    rows = [] if own is None else [laptop_row(me, own, 0.0)]
    rows += [
        laptop_row(peer, facts.laptop, now - heard)
        for peer, (facts, heard) in sorted(job.facts.items())
        if facts.laptop is not None and now - heard < FORGET
    ]
    tables = [JobTable("laptops", COLUMNS, tuple(rows))]
    if job.settings.mode == "queue":
        columns = (("owner", "peer"), ("term", ""), ("rollouts kept", ""), ("this node", ""))
        works = "owns it" if job.keeper.works() else "follows it"
        row = (job.keeper.owner or None, job.keeper.term, job.kept_rollouts, works)
        tables.append(JobTable("critic", columns, (row,)))
    return JobStatus(
        state=JobState(job.members.circle.name, job.speed, _figures(job, own)),
        steps=0 if own is None else own.steps,
        tables=tuple(tables),
    )


def laptop_row(peer: str, facts: LaptopFacts, heard: Seconds) -> tuple[FigureValue, ...]:
    """One laptop of the table."""
    reward = None if facts.reward is None else round(facts.reward, 1)
    speed = round(facts.steps_per_second)
    return (peer, facts.task, reward, bars(facts.curve), facts.steps, speed, facts.version, facts.in_time,
            facts.critic, round(heard, 1))  # fmt: skip


def describe_laptops(job: ActorsJob, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
    """The same peers with how they get on as laptops, by what they said last. No single model is trained here."""
    return tuple(_described(job, peer) for peer in peers)


def _described(job: ActorsJob, peer: PeerState) -> PeerState:
    state, (facts, _) = peer.job(job.name), job.facts.get(PeerId(peer.id), (None, 0.0))
    laptop = None if facts is None else facts.laptop
    if laptop is None and state.train is None:
        return peer
    speed = state.steps_per_second if laptop is None else laptop.steps_per_second
    figures = state.figures if laptop is None else laptop_figures(laptop)
    now = replace(state, train=None, steps_per_second=speed, figures=figures)
    return replace(peer, jobs={**peer.jobs, job.name: now})


def laptop_figures(facts: LaptopFacts) -> tuple[Figure, ...]:
    """How a laptop gets on, as figures; the most important first."""
    return (
        Figure("task", facts.task, "task", help="What this laptop learns."),
        Figure("return", facts.reward, "return", help="Mean reward of its latest 20 episodes."),
        Figure("curve", bars(facts.curve), "over time", help="Its return since it started, the latest last."),
        Figure("env_steps", facts.steps, "steps", help="Steps of its environments.", total=True),
        Figure("steps_a_second", round(facts.steps_per_second), "steps a second", help="Of its environments."),
        Figure("critic_version", facts.version, "critic version", help="Entries in its copy of the critic."),
        Figure("values_in_time", facts.in_time, "values in time", "share", "Values of the owner that came in time."),
        Figure("critic_used", facts.critic, "critic", help="Which critic it uses, and why."),
    )


def _figures(job: ActorsJob, own: LaptopFacts | None) -> tuple[Figure, ...]:
    if own is None:
        version = job.critic_version
        return (Figure("critic_version", version, "critic version", help="Entries in its copy of the critic."),)
    return (
        *laptop_figures(own),
        Figure("rollouts_shared", job.shared_out, "rollouts given", help="Own ones given to others.", total=True),
        Figure("rollouts_taken", job.shared_in, "rollouts taken", help="Of others, learned from.", total=True),
    )
