"""Makes the options of a node from flags, environment and TOML (strongest first), and checks them together.

The sources come in as mappings; `node/load.py` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..wire.errors import UsageError, suggestion
from ..wire.status import NO_LIMITS, LimitOptions
from .options import ACTORS, PIPELINE, QUEUES, Options, SimOptions
from .settings import PREFIX, SETTINGS, SIM_SETTINGS, Setting, keys_of

OFF = ("off", "none", "")
NOT_ABOUT_TRAINING = {"device", "max-disk"}  # these do not contradict --meet-only


@dataclass(frozen=True)
class Resolved:
    """The options of a node, and where each value came from (`default`, or the name of the source)."""

    options: Options
    origins: Mapping[str, str]

    def values(self) -> list[tuple[str, object, str]]:
        """(key, value, origin) of every setting, in the order of the table."""
        return [(key, value_of(self.options, item.field), self.origins[key]) for key, item in SETTINGS.items()]


@dataclass(frozen=True)
class Source:
    """Raw values by key. `label` makes the words by which an error names a key."""

    raw: Mapping[str, object]
    label: Callable[[str], str]


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
    """The options that the sources (strongest first) make together; UsageError in one line when they contradict."""
    options = Options(data_dir=default_data_dir)
    origins = dict.fromkeys(SETTINGS, "default")
    for source in reversed(list(sources)):
        for key, raw in source.raw.items():
            options = with_value(options, SETTINGS[key].field, read_value(SETTINGS[key], raw, source.label(key)))
            origins[key] = source.label(key)
    _check_together(options, origins)
    return Resolved(_with_invite(options), origins)


def read_value(item: Setting, raw: object, label: str) -> Any:
    """The checked value of one setting; UsageError in one line that begins with `label`."""
    try:
        return item.read(raw)
    except UsageError as error:
        raise UsageError(f"{label}: {str(error).removeprefix(f'--{item.key} ')}") from None


def read_flag(key: str, raw: object) -> Any:
    """One setting as a flag gives it, for commands that need no other; UsageError in one line."""
    return read_value(SETTINGS[key], raw, f"--{key}")


def read_simulation(given: Mapping[str, object], label: Callable[[Setting], str]) -> tuple[SimOptions, dict[str, Any]]:
    """Simulation options and training options from raw values by field name; UsageError in one line.

    The training options come as a dict of those given, to be put over whatever the simulated nodes train.
    """
    known = {item.field.rpartition(".")[2]: item for item in (*SIM_SETTINGS.values(), *SETTINGS.values())}
    known = {name: item for name, item in known.items() if item.field.startswith(("sim.", "train."))}
    values: dict[str, dict[str, Any]] = {"sim": {}, "train": {}}
    for name, raw in given.items():
        if name not in known:
            raise UsageError(f"{name[:60]!r} is not an option of a simulation; {suggestion(name, known)}")
        values[known[name].field.partition(".")[0]][name] = read_value(known[name], raw, label(known[name]))
    return SimOptions(**values["sim"]), values["train"]


def value_of(options: Options, field: str) -> Any:
    """The value of a field such as `run.access`."""
    found: Any = options
    for name in field.split("."):
        found = getattr(found, name)
    return found


def with_value(options: Options, field: str, value: object) -> Options:
    """The options with another value in a field such as `run.access`."""
    record, _, name = field.rpartition(".")
    if record:
        name, value = record, replace(getattr(options, record), **{name: value})
    return replace(options, **{name: value})  # type: ignore[arg-type]


def _check_together(options: Options, origins: Mapping[str, str]) -> None:
    """Raises UsageError for values that are fine one by one and contradict each other."""
    run, network, train = options.run, options.network, options.train
    usual = Options()
    about_training = [
        key
        for key in keys_of("train")
        if key not in NOT_ABOUT_TRAINING
        and value_of(options, SETTINGS[key].field) != value_of(usual, SETTINGS[key].field)
    ]
    contradictions = (
        (run.invite and run.found, "invite", "found", "join that run, or found a new one"),
        (run.invite and run.private, "invite", "private", "join that run, or found a private one"),
        (run.invite and run.access, "invite", "run", "the invite names its run; leave the other one out"),
        (run.found and run.access, "found", "run", "found a new run, or take part in this one"),
        (run.private and run.access, "private", "run", "whether a run is private was settled when it was founded"),
        *((run.meet_only, "meet-only", key, "train something, or only meet") for key in about_training),
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
        if getattr(train, one) is not None and getattr(train, other) is None:
            raise UsageError(f"{origins[one]} needs --{other} too; for example --split dirichlet:0.3 --part 1/4")
    if train.share_data and train.data is None and train.part is None:
        raise UsageError(f"{origins['share-data']} needs data of this node's own: --data, or --split and --part")
    if options.models and train.task is not None:
        raise UsageError(f"{origins['task']} contradicts {origins['model']}; name the task of each model in --model")
    if options.models and options.jobs and all(job.kind != QUEUES for job in options.jobs):
        raise UsageError(f"{origins['model']} contradicts {origins['job']}, of which none is of kind queues; use one")
    alone = [(job.kind, job.given.get("task")) for job in options.jobs]
    taken = alone in ([(ACTORS, None)], [(PIPELINE, None)])  # --task is that of the only job
    if options.jobs and train.task is not None and not taken:
        raise UsageError(f"{origins['task']} contradicts {origins['job']}; name the task of each job in --job")
    if options.jobs and run.meet_only:
        raise UsageError(f"{origins['meet-only']} contradicts {origins['job']}; train something, or only meet")
    if run.private and run.bootstrap and not run.found:
        raise UsageError(f"{origins['private']} is for founding a run, and a bootstrap joins one; add --found to found")


def _with_invite(options: Options) -> Options:
    """The options with the run and the addresses of the invite, if there is one. Addresses given besides come first."""
    run = options.run
    if run.invite is None:
        return options
    bootstrap = tuple(dict.fromkeys((*run.bootstrap, *run.invite.addresses)))
    return replace(options, run=replace(run, bootstrap=bootstrap, access=run.invite.access))


def changed(limits: LimitOptions, written: Mapping[str, object]) -> LimitOptions:
    """The limits with some of them written anew, by key; `off` lifts a limit. UsageError in one line."""
    known = keys_of("limits")
    values: dict[str, Any] = {}
    for key, raw in written.items():
        if key not in known:
            raise UsageError(f"{key[:60]!r} is not a limit; {suggestion(key, known)}")
        name = key.replace("-", "_")
        off = isinstance(raw, str) and raw.strip().lower() in OFF
        values[name] = getattr(NO_LIMITS, name) if off else read_flag(key, raw)
    return replace(limits, **values)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each P2PNODE_ variable that sets nothing. It is likely a slip, but no reason to refuse to start."""
    known = {item.variable for item in SETTINGS.values()} | {f"{PREFIX}CONFIG"}
    ours = (f"{PREFIX}TEST_",)  # for the project's own tests
    return [
        f"{name} is not a setting; {suggestion(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known and not name.startswith(ours)
    ]
