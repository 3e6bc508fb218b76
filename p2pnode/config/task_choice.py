"""What the user wants to learn; kept apart from torch, so that a node that only meets never imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..wire.run import Aim


@dataclass(frozen=True)
class TaskChoice:
    """What the user wants to learn, and how a run founded for it goes about it."""

    spec: str = "digits"
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    source: str | None = None  # --data: where this node's data are
    policy: str = "deltaset"
    settings: Mapping[str, float] = field(default_factory=dict)
    round_seconds: float = 2.0
    max_steps: int = 200
    aim: Aim = "shared"
    device: str = "auto"
    given: frozenset[str] = frozenset()  # which of these the user said: a run that differs in one of them is refused
    foreign: bool = False  # named by a run's founder, not here: only what is built in or installed may be loaded
