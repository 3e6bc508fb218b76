"""What is simulated, as a value: equal plans give equal traces."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..circles.advice import MAX_CIRCLE
from ..config.options import TaskChoice
from ..merging.registry import check_settings
from ..network.sim import Fault, Links
from ..node.entrance import DataPart
from ..node.node import NodeSettings
from ..shards.split import parse_split
from ..similarity.partners import RANGES, partner_settings, without_partner_settings
from ..wire.errors import UsageError
from ..wire.ids import Identity, sha256
from ..wire.types import Seconds

EPOCH = 1_800_000_000.0  # what a right clock shows at virtual time 0
BY_ITSELF = 0


@dataclass(frozen=True)
class SimTraining:
    """What the nodes of a plan learn. Times are declared, not measured: a node of speed 1 does `mean_steps` a round."""

    choice: TaskChoice = field(default_factory=lambda: TaskChoice(device="cpu"))
    split: str = "iid"
    rounds: int = 100  # the simulation ends when every node has done so many
    circle: int = BY_ITSELF  # declared: nodes 0 to circle - 1 share a delta set, the next `circle` another, and so on
    speeds: tuple[float, float] = (1.0, 1.0)  # between which each node's speed is drawn
    mean_steps: float = 10.0
    share_data: bool = False  # the nodes' samples may travel
    visits: bool = False  # and models visit those that do not

    @property
    def usual_seconds(self) -> Seconds:
        """How long the rounds take once all are there, give or take a little, when nothing goes wrong."""
        return 10.0 + 1.05 * self.rounds * self.choice.round_seconds

    def circle_of(self, index: int) -> str:
        """The circle a node is declared to be in; "": its own to find."""
        return f"circle {index // self.circle}" if self.circle else ""

    def speed_of(self, seed: int, index: int) -> float:
        """Local steps a second of a node."""
        low, high = self.speeds
        drawn = random.Random(f"speed {seed} {index}").random()
        factor = low * math.exp(drawn * math.log(high / low))
        return factor * self.mean_steps / self.choice.round_seconds


@dataclass(frozen=True)
class Scenario:
    """What is simulated. Node 0 founds the run; the others get its address, and start within `spread` seconds."""

    peers: int = 16
    seed: int = 0
    seconds: Seconds = 120.0  # with a lesson: at most
    links: Links = field(default_factory=Links)
    faults: tuple[Fault, ...] = ()
    skew: Mapping[int, Seconds] = field(default_factory=dict)  # by how much each node's clock is wrong
    spread: Seconds = 10.0
    sample_every: Seconds = 10.0  # 0: never
    keep_trace: int = 0
    settings: Callable[[NodeSettings, int, int], NodeSettings] = lambda usual, index, starts: usual
    lesson: SimTraining | None = None  # None: the nodes only meet

    def share_of(self, index: int) -> DataPart | None:
        return None if self.lesson is None else DataPart(self.lesson.split, index, self.peers, self.seed)

    def facts(self) -> dict[str, object]:
        """What a recording says about the plan."""
        facts: dict[str, object] = {"peers": self.peers, "seed": self.seed, "seconds": self.seconds}
        facts |= {"latency": self.links.latency, "rate": self.links.rate if self.links.rate < math.inf else None}
        facts |= {"loss": self.links.loss, "faults": len(self.faults)}
        lesson = self.lesson
        if lesson is not None:
            choice = lesson.choice
            facts |= {"task": choice.spec, "options": dict(choice.options), "split": lesson.split}
            facts |= {"policy": choice.policy, "settings": dict(choice.settings), "rounds": lesson.rounds}
            facts |= {
                "aim": choice.aim,
                "circle": lesson.circle,
                "speeds": lesson.speeds,
                "mean_steps": lesson.mean_steps,
                "share_data": lesson.share_data,
                "visits": lesson.visits,
            }
        return facts


def identity_of(seed: int, index: int) -> Identity:
    """The identity of a node of a simulated swarm."""
    return Identity(sha256(f"p2pnode simulation {seed} node {index}".encode()))


MAX_PEERS = 10_000
MAX_ROUNDS = 1_000_000


def check_plan(plan: Scenario) -> None:
    """UsageError says what is wrong."""
    if not 1 <= plan.peers <= MAX_PEERS:
        raise UsageError(f"--peers {plan.peers} must lie between 1 and {MAX_PEERS:,}")
    if plan.lesson is not None:
        _check_lesson(plan.lesson)
        _check_data(plan.lesson, plan.peers, plan.seed)


def _check_lesson(lesson: SimTraining) -> None:
    if not BY_ITSELF <= lesson.circle <= MAX_CIRCLE:
        raise UsageError(f"--circle {lesson.circle} must lie between 1 and {MAX_CIRCLE}, or be 0: found by themselves")
    if not 1 <= lesson.rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {lesson.rounds} must lie between 1 and {MAX_ROUNDS:,}")
    parse_split(lesson.split)
    try:
        partner_settings(lesson.choice.settings)
    except ValueError as error:
        raise UsageError(f"--set {error}") from None
    try:
        check_settings(lesson.choice.policy, without_partner_settings(lesson.choice.settings), besides=RANGES)
    except ValueError as error:
        raise UsageError(f"--policy {lesson.choice.policy[:40]}: {error}") from None


def _check_data(lesson: SimTraining, peers: int, seed: int) -> None:
    from ..shards.split import split_rows
    from ..tasks.find import load_task  # torch
    from ..tasks.task import length

    task = load_task(lesson.choice.spec, lesson.choice.options, lesson.choice.source)
    data = task.data()
    labels = task.labels(data)
    split_rows(None if labels is None else labels.numpy(), length(data), peers, parse_split(lesson.split), seed)
