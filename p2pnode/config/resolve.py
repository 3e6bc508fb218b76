"""From what was written to the settings: flags, environment and TOML are derived from `settings` and checked here only.

Pure: the sources come in as mappings; `door.load` reads them. Precedence: flag > environment > TOML > default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..wire.errors import UsageError, suggestion
from .options import NO_LIMITS, PREFIX, Config, GuestSettings, Setting

OFF = ("off", "none", "")
ABOUT_LEARNING = (
    "task", "task-option", "data", "share-data", "reserve", "no-visits", "policy", "set", "aim", "round-seconds",
    "split", "part",
)  # fmt: skip
T = TypeVar("T")


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
            raise UsageError(f"{path}: unknown key {written[:60]!r}; {suggestion(key, SETTINGS)}")
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


def read_flag(key: str, raw: object) -> Any:
    """One setting as a flag gives it, for commands without a configuration; UsageError in one line."""
    return _read(SETTINGS[key], raw, f"--{key}")


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
    learned = [(key, getattr(learning, key.replace("-", "_"))) for key in ABOUT_LEARNING]
    contradictions = (
        (run.found and run.run, "found", "run", "found a new run, or take part in this one"),
        (run.private and run.run, "private", "run", "whether a run is private was settled when it was founded"),
        (learning.meet_only and learning.until, "meet-only", "until", "a node that learns nothing never gets there"),
        *((learning.meet_only and told, "meet-only", key, "learn something, or only meet") for key, told in learned),
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
    if learning.share_data and learning.data is None and learning.part is None:
        raise UsageError(f"{origins['share-data']} needs data of this node's own: --data, or --split and --part")
    if run.private and run.bootstrap and not run.found:
        raise UsageError(f"{origins['private']} is for founding a run, and a bootstrap joins one; add --found to found")


def changed(guest: GuestSettings, words: Mapping[str, object]) -> GuestSettings:
    """The settings with some of them written anew, by key; `off` is no limit. UsageError in one line."""
    known = {field.name.replace("_", "-") for field in dataclasses.fields(guest)}
    values: dict[str, object] = {}
    for key, raw in words.items():
        if key not in known:
            raise UsageError(f"{key[:60]!r} is not a limit; {suggestion(key, known)}")
        off = isinstance(raw, str) and raw.strip().lower() in OFF
        values[key] = getattr(NO_LIMITS, key.replace("-", "_")) if off else _read(SETTINGS[key], raw, f"--{key}")
    return _build(guest, values)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each P2PNODE_ variable that sets nothing: likely a slip, but not ours to refuse."""
    known = {item.variable for item in SETTINGS.values()} | {f"{PREFIX}CONFIG"}
    return [
        f"{name} is not a setting; {suggestion(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known
    ]
