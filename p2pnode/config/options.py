"""What a user can set: one frozen tree, in which each setting says how people write it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..runtime.limits import Rules, Schedule
from ..wire.addresses import Address, Reachability
from ..wire.run import Aim, RunAccess
from .readers import (
    AIMS,
    DEVICES,
    LOG_FORMATS,
    REACHABILITY,
    Device,
    LogFormat,
    choice,
    read_announce,
    read_bootstrap,
    read_bytes,
    read_cpu,
    read_dashboard,
    read_listen,
    read_name,
    read_numbers,
    read_options,
    read_part,
    read_path,
    read_rate,
    read_run,
    read_schedule,
    read_seconds,
    read_split,
    read_switch,
    read_until,
    read_word,
)
from .until import Until

# ruff: noqa: RUF009  (the fields below are made by a function, which returns what `dataclasses.field` does)


PREFIX = "P2PNODE_"


@dataclass(frozen=True)
class Setting:
    """How one value of the tree is written by people: `--key`, `P2PNODE_KEY`, `key = …` in TOML."""

    key: str
    read: Callable[[object], Any]  # a raw value of any source to the checked one; UsageError without the source's name
    help: str
    metavar: str = ""
    many: bool = False
    switch: bool = False
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace("-", "_").upper()


def _setting(default: object, read: Callable[[object], Any], help: str, metavar: str = "", **more: Any) -> Any:
    """A field of the tree; its key is filled in from the field's name."""
    return dataclasses.field(default=default, metadata={"setting": Setting("", read, help, metavar, **more)})


@dataclass(frozen=True)
class RunSettings:
    """Which run, and how to get there."""

    bootstrap: tuple[Address, ...] = _setting(
        (), read_bootstrap, "Address of a node to join through; any one suffices.", "ADDR", many=True,
        aliases=("--initial-peers",),
    )  # fmt: skip
    run: RunAccess | None = _setting(None, read_run, "Run to take part in, as the invite gives it.", "RUN[.KEY]")
    found: bool = _setting(False, read_switch, "Found a new run, whatever was saved.", switch=True)
    private: bool = _setting(False, read_switch, "The run founded needs a key; the invite carries it.", switch=True)
    join_timeout: float | None = _setting(
        None, read_seconds, "Give up when nobody was met after so long; without it, try for ever.", "SECONDS"
    )


@dataclass(frozen=True)
class LearningSettings:
    """What is learned. Who joins a run follows its plan: what is said here must go with that."""

    task: str | None = _setting(
        None, read_word, "What to learn: digits (the default), fashion-mnist, text, an installed task, "
        "package.module:Class or file.py[:Class].", "TASK",
    )  # fmt: skip
    task_option: tuple[tuple[str, str], ...] = _setting(
        (), read_options, "Set an option of the task.", "KEY=VALUE", many=True
    )
    data: Path | None = _setting(None, read_path, "Where the task's data are, if it needs any.", "PATH")
    share_data: bool = _setting(
        False, read_switch, "The samples of --data, or of --part, may travel to other nodes.", switch=True
    )
    reserve: bool = _setting(False, read_switch, "Train less often on what models are sure of.", switch=True)
    no_visits: bool = _setting(
        False, read_switch, "Models of others may not come to train on data that stay here.", switch=True
    )
    device: Device = _setting("auto", choice(DEVICES), "Where to train.", choices=DEVICES)
    policy: str | None = _setting(None, read_word, "How a run founded here merges: deltaset (the default), …", "POLICY")
    set: tuple[tuple[str, float], ...] = _setting(
        (), read_numbers, "Set a number of the policy (density, …) or of the choice of partners (explore, …).",
        "KEY=VALUE", many=True,
    )  # fmt: skip
    aim: Aim | None = _setting(
        None, choice(AIMS), "What a run founded here is for: one model, or each community's own.", choices=AIMS
    )
    round_seconds: float | None = _setting(None, read_seconds, "About how long a round should take.", "SECONDS")
    split: str | None = _setting(
        None, read_split, "Experiments: deal the data out: iid, dirichlet:0.3, labels:2; needs --part.", "SPLIT"
    )
    part: tuple[int, int] | None = _setting(None, read_part, "Which part of the split is this node's.", "I/N")
    until: Until | None = _setting(
        None, read_until, "Leave at: converged, rounds:N, time:30m or accuracy:0.9; without it, never.", "WHEN"
    )
    meet_only: bool = _setting(False, read_switch, "Learn nothing: only meet the others.", switch=True)
    max_disk: int | None = _setting(None, read_bytes, "The most disk that learning may use, such as 2GB.", "SIZE")
    leave_timeout: float = _setting(
        20.0, read_seconds, "Before leaving, hand over shards that are only here for so long.", "SECONDS"
    )


@dataclass(frozen=True)
class NetworkSettings:
    """Where this node can be reached."""

    listen: tuple[str, ...] = _setting(
        (), read_listen, "Where to listen: an address, or just a port.", "ADDR", many=True
    )
    announce: tuple[str, ...] = _setting(
        (), read_announce, "Address to tell others instead of the ones found.", "ADDR", many=True
    )
    no_listen: bool = _setting(False, read_switch, "Do not listen; be reached through relays.", switch=True)
    reachability: Reachability = _setting(
        "auto", choice(REACHABILITY), "Whether others can dial this node; auto finds out.", choices=REACHABILITY
    )


@dataclass(frozen=True)
class GuestSettings(Rules):
    """How far the node may use the machine, as people write it. Can be changed while it runs."""

    max_upload: float | None = _setting(None, read_rate, "Send at most so many bytes a second: 500k, 2M, …", "RATE")
    max_download: float | None = _setting(None, read_rate, "Receive at most so many bytes a second.", "RATE")
    max_cpu: float | None = _setting(None, read_cpu, "Use at most this share of the machine, such as 50%.", "SHARE")
    pause_on_battery: bool = _setting(False, read_switch, "Rest while the machine runs on battery.", switch=True)
    idle_only: bool = _setting(False, read_switch, "Rest while others use the machine.", switch=True)
    schedule: Schedule | None = _setting(
        None, read_schedule, "Work only at these times of the day, such as 22:00-07:00.", "SPANS"
    )


NO_LIMITS = GuestSettings()


@dataclass(frozen=True)
class OutputSettings:
    """What is shown."""

    log_format: LogFormat = _setting(
        "auto", choice(LOG_FORMATS), "auto: a live view in a terminal, lines elsewhere.", choices=LOG_FORMATS
    )
    quiet: bool = _setting(False, read_switch, "Show warnings only.", switch=True)
    dashboard: tuple[str, int] | None = _setting(
        None,
        read_dashboard,
        "Serve a page to look at the swarm, on this machine unless a host is given.",
        "[HOST:]PORT",
    )
    tensorboard: Path | None = _setting(None, read_path, "Write curves for TensorBoard into this directory.", "DIR")


@dataclass(frozen=True)
class Config:
    """All settings, checked. `name` None: one made from the node's identity."""

    name: str | None = _setting(None, read_name, "What other peers see this node as.", "NAME")
    data_dir: Path = _setting(Path(), read_path, "Where identity, run and peer book are kept.", "DIR")
    run: RunSettings = RunSettings()
    learning: LearningSettings = LearningSettings()
    network: NetworkSettings = NetworkSettings()
    guest: GuestSettings = NO_LIMITS
    output: OutputSettings = OutputSettings()


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
