"""What a user can set: one frozen tree. Flags, environment and TOML are derived from it, and checked here only.

Pure: the sources come in as mappings; `door.load` reads them. Precedence: flag > environment > TOML > default.
"""

# ruff: noqa: RUF009  (the fields below are made by a function, which returns what `dataclasses.field` does)

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .addresses import Address
from .errors import UsageError
from .readers import (
    AIMS,
    DEVICES,
    LOG_FORMATS,
    REACHABILITY,
    Device,
    LogFormat,
    Reachability,
    choice,
    read_announce,
    read_bootstrap,
    read_bytes,
    read_dashboard,
    read_listen,
    read_name,
    read_numbers,
    read_options,
    read_part,
    read_path,
    read_run,
    read_seconds,
    read_split,
    read_switch,
    read_until,
    read_word,
)
from .run import Aim, RunAccess
from .until import Until

PREFIX = "P2PNODE_"
T = TypeVar("T")


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
    device: Device = _setting("auto", choice(DEVICES), "Where to train.", choices=DEVICES)
    policy: str | None = _setting(None, read_word, "How a run founded here merges: deltaset (the default), …", "POLICY")
    set: tuple[tuple[str, float], ...] = _setting(
        (), read_numbers, "Set a number of the policy, such as density.", "KEY=VALUE", many=True
    )
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


@dataclass(frozen=True)
class Config:
    """All settings, checked. `name` None: one made from the node's identity."""

    name: str | None = _setting(None, read_name, "What other peers see this node as.", "NAME")
    data_dir: Path = _setting(Path(), read_path, "Where identity, run and peer book are kept.", "DIR")
    run: RunSettings = RunSettings()
    learning: LearningSettings = LearningSettings()
    network: NetworkSettings = NetworkSettings()
    output: OutputSettings = OutputSettings()


@dataclass(frozen=True)
class Resolved:
    """A configuration, and where each of its values came from (`default` or the name of the source)."""

    config: Config
    origins: Mapping[str, str]

    def values(self) -> list[tuple[str, object, str]]:
        """(key, value, origin) in the tree's order."""
        found = {key: getattr(owner, field) for key, owner, field in _walk(self.config)}
        return [(key, found[key], self.origins[key]) for key in SETTINGS]


@dataclass(frozen=True)
class Source:
    """Raw values by key. `label` turns a key into the words an error names it by."""

    raw: Mapping[str, object]
    label: Callable[[str], str]


def _walk(owner: Any) -> Iterable[tuple[str, Any, str]]:
    """Every setting below `owner`: key, the dataclass instance that holds it, its field's name."""
    for field in dataclasses.fields(owner):
        if "setting" in field.metadata:
            yield field.name.replace("_", "-"), owner, field.name
        else:
            yield from _walk(getattr(owner, field.name))


def _all_settings() -> dict[str, Setting]:
    found = {}
    for key, owner, name in _walk(Config()):
        meta = owner.__dataclass_fields__[name].metadata["setting"]
        found[key] = dataclasses.replace(meta, key=key)
    return found


SETTINGS: Mapping[str, Setting] = _all_settings()


def from_flags(flags: Mapping[str, object]) -> Source:
    """Flags by key; those not given are absent."""
    return Source(flags, lambda key: f"--{key}")


def from_environment(environ: Mapping[str, str]) -> Source:
    """The P2PNODE_ variables; an empty one counts as not set."""
    raw = {key: environ[item.variable] for key, item in SETTINGS.items() if environ.get(item.variable, "").strip()}
    return Source(raw, lambda key: SETTINGS[key].variable)


def from_toml(values: Mapping[str, object], path: str) -> Source:
    """A parsed TOML file. Keys are the flags' names (`_` for `-` is fine); any other is an error with a suggestion."""
    raw: dict[str, object] = {}
    for written, value in values.items():
        key = written.replace("_", "-")
        if key not in SETTINGS:
            raise UsageError(f"{path}: unknown key {written[:60]!r}; {_suggest(key, SETTINGS)}")
        if key in raw:
            raise UsageError(f"{path}: {key!r} is given twice; keep one of them")
        raw[key] = value
    return Source(raw, lambda key: f"{path}: {key}")


def resolve(sources: Iterable[Source], default_data_dir: Path) -> Resolved:
    """The configuration the sources (strongest first) make together; UsageError in one line when they make none."""
    values: dict[str, object] = {"data-dir": default_data_dir}
    origins = dict.fromkeys(SETTINGS, "default")
    for source in reversed(list(sources)):
        for key, raw in source.raw.items():
            values[key] = _read(SETTINGS[key], raw, source.label(key))
            origins[key] = source.label(key)
    config = _build(Config(), values)
    _check_together(config, origins)
    return Resolved(config, origins)


def _read(item: Setting, raw: object, label: str) -> object:
    try:
        return item.read(raw)
    except UsageError as error:
        raise UsageError(f"{label}: {str(error).removeprefix(f'--{item.key} ')}") from None


def _build(owner: T, values: Mapping[str, object]) -> T:
    changes: dict[str, object] = {}
    for field in dataclasses.fields(owner):  # type: ignore[arg-type]
        key = field.name.replace("_", "-")
        if "setting" not in field.metadata:
            changes[field.name] = _build(getattr(owner, field.name), values)
        elif key in values:
            changes[field.name] = values[key]
    return dataclasses.replace(owner, **changes)  # type: ignore[type-var]


def _check_together(config: Config, origins: Mapping[str, str]) -> None:
    """Values that are fine one by one and contradict each other."""
    run, network, learning = config.run, config.network, config.learning
    contradictions = (
        (run.found and run.run, "found", "run", "found a new run, or take part in this one"),
        (run.private and run.run, "private", "run", "whether a run is private was settled when it was founded"),
        (learning.meet_only and learning.task, "meet-only", "task", "learn something, or only meet"),
        (learning.meet_only and learning.until, "meet-only", "until", "a node that learns nothing never gets there"),
        (network.no_listen and network.listen, "no-listen", "listen", "remove one of them"),
        (network.no_listen and network.announce, "no-listen", "announce", "remove one of them"),
        (
            network.no_listen and network.reachability == "public", "no-listen", "reachability",
            "a node that does not listen cannot be dialled; remove one of them",
        ),
    )  # fmt: skip
    for contradiction, one, other, remedy in contradictions:
        if contradiction:
            raise UsageError(f"{origins[one]} contradicts {origins[other]}; {remedy}")
    for one, other in (("split", "part"), ("part", "split")):
        if getattr(learning, one) is not None and getattr(learning, other) is None:
            raise UsageError(f"{origins[one]} needs --{other} too; for example --split dirichlet:0.3 --part 1/4")
    if run.private and run.bootstrap and not run.found:
        raise UsageError(f"{origins['private']} is for founding a run, and a bootstrap joins one; add --found to found")


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each P2PNODE_ variable that sets nothing: likely a slip, but not ours to refuse."""
    known = {item.variable for item in SETTINGS.values()} | {f"{PREFIX}CONFIG"}
    return [
        f"{name} is not a setting; {_suggest(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known
    ]


def _suggest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
