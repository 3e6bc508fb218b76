"""How people write each option: one table, from which flags, environment variables and TOML keys are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..wire.errors import UsageError
from ..wire.status import MAX_JOBS
from ..wire.types import JOB_NAME
from .options import QUEUES, TRAIN, JobOptions
from .readers import (
    AIMS,
    DEVICES,
    LOG_FORMATS,
    QUARANTINE,
    REACHABILITY,
    choice,
    read_announce,
    read_bootstrap,
    read_dashboard,
    read_hashes,
    read_invite,
    read_listen,
    read_moderators,
    read_name,
    read_pairs,
    read_part,
    read_path,
    read_run,
    read_schedule,
    read_settings,
    read_split,
    read_switch,
    read_until,
    read_word,
)
from .units import read_positive_time, read_rate, read_share, read_size, read_speeds, read_time, read_whole

PREFIX = "P2PNODE_"
LEAST_RATE = 32_000  # bytes a second: twice the rate below which a stream is given up (network.base)
LEAST_CPU = 0.01


@dataclass(frozen=True)
class Setting:
    """One option as people write it: `--key`, `P2PNODE_KEY`, `key = …` in TOML."""

    key: str
    field: str  # of Options: `run.access` is the field `access` of its record `run`
    read: Callable[[object], Any]  # a raw value of any source to the checked one; UsageError without the source's name
    help: str
    metavar: str = ""
    many: bool = False
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace("-", "_").upper()

    @property
    def switch(self) -> bool:
        return self.read is read_switch


def table(rows: Iterable[Setting]) -> dict[str, Setting]:
    return {row.key: row for row in rows}


def read_jobs(raw: object, noun: str = "jobs") -> tuple[JobOptions, ...]:
    """Jobs (or models) as `NAME[=TASK][,kind=KIND][,KEY=VALUE...]`, or as TOML tables.

    A KEY of the kind `train` is that of a training option, else of the task. Other kinds check their keys themselves.
    """
    items = raw if isinstance(raw, list | tuple) else str(raw).split(";")
    jobs = tuple(_read_job(dict(item) if isinstance(item, Mapping) else _job_pairs(str(item))) for item in items)
    if len({job.name for job in jobs}) < len(jobs):
        raise UsageError(f"two {noun} have one name; give each its own")
    if len(jobs) > MAX_JOBS and noun == "jobs":
        raise UsageError(f"{len(jobs)} jobs are too many; a run has at most {MAX_JOBS}")
    return jobs


def read_task(raw: object) -> str:
    """The name of one task; UsageError where a model of queues was written instead."""
    word = read_word(raw)
    name, equals, _ = word.partition("=")
    if equals and re.fullmatch(JOB_NAME, name):
        raise UsageError(f"names one task; to train several models at once, write each as --model {word[:80]}")
    return word


def _job_pairs(text: str) -> dict[str, object]:
    first, _, rest = text.strip().partition(",")
    name, equals, task = first.partition("=")
    pairs = read_pairs(rest)
    if first == QUEUES:  # a job of the kind that its name says
        pairs.setdefault("kind", QUEUES)
    if bool(equals) != bool(task) or not (task or "kind" in pairs):
        raise UsageError(
            f"{text[:60]!r} is not NAME=TASK[,KEY=VALUE...]; for example wide=digits,hidden=256, "
            "or NAME,kind=KIND for other work than training"
        )
    return {"name": name, **({"task": task} if task else {}), **pairs}


def _read_job(values: dict[str, Any]) -> JobOptions:
    name, kind = str(values.pop("name", "")), str(values.pop("kind", TRAIN))
    if not re.fullmatch(JOB_NAME, name):
        raise UsageError(f"{name[:60]!r} is not the name of a job: 1 to 32 of a-z, 0-9, - and _, not 'manifest'")
    if kind != TRAIN:
        return JobOptions(name, kind, {key.replace("-", "_"): value for key, value in values.items()})
    given: dict[str, Any] = {"task_options": read_pairs(values.pop("task-option", {}))}
    for written, value in values.items():
        item = SETTINGS.get(written.replace("_", "-"))
        if item is None or item.key not in JOB_KEYS:
            given["task_options"] |= read_pairs({written: value})
            continue
        try:
            given[item.field.removeprefix("train.")] = item.read(value)
        except UsageError as error:
            raise UsageError(f"{name}: {item.key}: {error}") from None
    return JobOptions(name, kind, given)


def read_only(raw: object) -> tuple[str, ...]:
    """Names of jobs, in a list or with commas between them."""
    items = raw if isinstance(raw, list | tuple) else [raw]
    return tuple(dict.fromkeys(word for item in items for word in str(item).replace(",", " ").split()))


_read_limit = partial(read_rate, least=LEAST_RATE)

SETTINGS: Mapping[str, Setting] = table(
    [
        Setting("name", "name", read_name, "The name other peers see.", "NAME"),
        Setting("data-dir", "data_dir", read_path, "Where identity, run and peer book are kept.", "DIR"),
        # the run
        Setting("invite", "run.invite", read_invite, "Join the run of this invite, as `join CODE` does.", "CODE"),
        Setting(
            "bootstrap", "run.bootstrap", read_bootstrap, "Address of a node to join through; one is enough.", "ADDR",
            many=True, aliases=("--initial-peers",),
        ),
        Setting("run", "run.access", read_run, "The run to take part in, as the invite gives it.", "RUN[.KEY]"),
        Setting("found", "run.found", read_switch, "Found a new run, whatever was saved."),
        Setting("private", "run.private", read_switch, "The new run needs a key, which its invite carries."),
        Setting(
            "moderators", "run.moderators", read_moderators,
            "Who may exclude authors from the new run: peer ids with commas between, `founder` or `none`.", "PEERS",
        ),
        Setting(
            "join-timeout", "run.join_timeout", read_positive_time,
            "Give up if nobody answers within this time; without it, keep trying.", "TIME",
        ),
        # training
        Setting(
            "task", "train.task", read_task, "What to train: digits (the default), fashion-mnist, gpt, an installed "
            "task, package.module:Class or file.py[:Class].", "TASK",
        ),
        Setting(
            "accept-task", "train.accept_task", read_hashes,
            "Let the task's file of this sha256, which comes from the run's founder, run here without being asked.",
            "SHA256", many=True,
        ),
        Setting("task-option", "train.task_options", read_pairs, "Set an option of the task.", "KEY=VALUE", many=True),
        Setting("data", "train.data", read_path, "Where the task's data are, if it needs any.", "PATH"),
        Setting(
            "share-data", "train.share_data", read_switch,
            "The samples of --data, or of --part, may travel to other nodes.",
        ),
        Setting("reserve", "train.reserve", read_switch, "Train less often on samples that models are sure of."),
        Setting(
            "quarantine", "train.quarantine", choice(QUARANTINE),
            "Leave out samples that models of other peers fail at (labels may be wrong): auto with --share-data, "
            "--reserve or received shards, on always, off never.", choices=QUARANTINE,
        ),
        Setting(
            "no-model-swaps", "train.no_model_swaps", read_switch,
            "Models of other nodes may not come to train on data that stay here.",
        ),
        Setting("device", "train.device", choice(DEVICES), "Where to train.", choices=DEVICES),
        Setting(
            "policy", "train.policy", read_word, "How a run founded here merges: deltaset (the default), average, "
            "gossip, diloco or an installed policy.", "POLICY",
        ),
        Setting(
            "set", "train.settings", read_settings,
            "Set a number of the policy (density, …) or of the choice of partners (explore, …).", "KEY=VALUE",
            many=True,
        ),
        Setting(
            "aim", "train.aim", choice(AIMS),
            "What a run founded here aims for: one shared model, or an own model for each community.", choices=AIMS,
        ),
        Setting("round-seconds", "train.round_seconds", read_positive_time, "About how long a round takes.", "TIME"),
        Setting(
            "split", "train.split", read_split,
            "Experiments: deal out the data as iid, parts, dirichlet:0.3 or labels:2; needs --part.", "SPLIT",
        ),
        Setting("part", "train.part", read_part, "Experiments: which part of the split this node gets.", "I/N"),
        Setting(
            "until", "train.until", read_until,
            "Leave when this is reached: steps:N, converged, rounds:N, time:30m or accuracy:0.9; without it, never. "
            "A run founded with steps:N is planned for N steps of each member, and its learning rate falls "
            "towards the end.", "GOAL",
        ),
        Setting(
            "full-speed", "train.full_speed", read_switch,
            "Go on at full speed when the run has converged; otherwise the node rests between rounds then.",
        ),
        Setting("meet-only", "run.meet_only", read_switch, "Take part in no job; only be present."),
        Setting("max-disk", "train.max_disk", read_size, "The most disk that training may use, such as 2GB.", "SIZE"),
        Setting(
            "leave-timeout", "run.leave_timeout", read_positive_time,
            "Before leaving, spend up to this time on handing over what only this node has.", "TIME",
        ),
        # several jobs
        Setting(
            "job", "jobs", read_jobs, "Found a run with several jobs, one for each --job; or, when joining, options of "
            "one of the run's jobs. KEY is a training option (data, policy, until, ...) or an option of the task; "
            "NAME,kind=KIND is a job of an installed kind of work, with its own keys.",
            "NAME=TASK[,KEY=VALUE...]", many=True,
        ),
        Setting(
            "model", "models", partial(read_jobs, noun="models"), "Train several models at once, each with its own "
            "queue: one --model for each, written as for --job.", "NAME=TASK[,KEY=VALUE...]", many=True,
        ),
        Setting(
            "paths", "paths", read_word, "Found a run that trains paths through one model: its layers in LEVELS, each "
            "with OPTIONS to choose from.", "LEVELSxOPTIONS",
        ),
        Setting(
            "serve-only", "serve_only", read_switch, "In a pipeline: serve blocks of the model to others, without data "
            "of this node's own."
        ),
        Setting("only", "only", read_only, "Take part in these jobs of the run only.", "NAME[,NAME...]"),
        # the network
        Setting(
            "listen", "network.listen", read_listen, "Where to listen: an address, or just a port.", "ADDR", many=True
        ),
        Setting(
            "announce", "network.announce", read_announce, "Address to announce instead of the ones found.", "ADDR",
            many=True,
        ),
        Setting("no-listen", "network.no_listen", read_switch, "Do not listen; be reached through relays."),
        Setting(
            "reachability", "network.reachability", choice(REACHABILITY),
            "Whether others can dial this node; auto finds out.", choices=REACHABILITY,
        ),
        Setting("no-lan", "network.no_lan", read_switch, "Do not show this node's run to others in the local network."),
        # limits
        Setting("max-upload", "limits.max_upload", _read_limit, "Send at most this much: 500k, 2MB/s, …", "RATE"),
        Setting("max-download", "limits.max_download", _read_limit, "Receive at most this much.", "RATE"),
        Setting(
            "max-cpu", "limits.max_cpu", partial(read_share, least=LEAST_CPU),
            "Use at most this share of the machine, such as 50%.", "SHARE",
        ),
        Setting("pause-on-battery", "limits.pause_on_battery", read_switch, "Rest while the machine runs on battery."),
        Setting("idle-only", "limits.idle_only", read_switch, "Rest while others use the machine."),
        Setting(
            "schedule", "limits.schedule", read_schedule, "Work only at these times of the day, such as 22:00-07:00.",
            "SPANS",
        ),
        # output
        Setting(
            "log-format", "output.log_format", choice(LOG_FORMATS), "auto: a live view in a terminal, lines elsewhere.",
            choices=LOG_FORMATS,
        ),
        Setting("quiet", "output.quiet", read_switch, "Show warnings only."),
        Setting(
            "dashboard", "output.dashboard", read_dashboard,
            "Serve a page to look at the swarm, on this machine unless a host is given.", "[HOST:]PORT",
        ),
        Setting(
            "tensorboard", "output.tensorboard", read_path, "Write curves for TensorBoard into this directory.", "DIR"
        ),
    ]
)  # fmt: skip

_MOST_LOST = 0.99  # of the messages: with more nothing ever arrives

SIM_SETTINGS: Mapping[str, Setting] = table(
    [
        Setting("peers", "sim.peers", partial(read_whole, least=1, most=10_000), "How many nodes.", "N"),
        Setting(
            "rounds", "sim.rounds", partial(read_whole, least=1, most=1_000_000), "Rounds that every node does.", "N"
        ),
        Setting("seed", "sim.seed", read_whole, "Equal seeds give equal simulations.", "N"),
        Setting("seconds", "sim.seconds", read_positive_time, "End after this much virtual time.", "TIME"),
        Setting("latency", "sim.latency", read_time, "How long a message takes, such as 50ms.", "TIME"),
        Setting("rate", "sim.rate", read_rate, "How fast a node can send, such as 20mbit.", "RATE"),
        Setting("loss", "sim.loss", partial(read_share, most=_MOST_LOST), "Share of messages that are lost.", "SHARE"),
        Setting(
            "duplicate", "sim.duplicate", partial(read_share, most=_MOST_LOST), "Share of messages that arrive twice.",
            "SHARE",
        ),
        Setting(
            "reorder", "sim.reorder", partial(read_share, most=_MOST_LOST),
            "Share of messages that are overtaken by later ones.", "SHARE",
        ),
        Setting("churn", "sim.churn", read_share, "Share of nodes that crash and come back.", "SHARE"),
        Setting(
            "speeds", "sim.speeds", read_speeds, "The slowest and the fastest node, as multiples of a usual one: 1-4.",
            "LOW-HIGH",
        ),
        Setting(
            "circle", "sim.circle", read_whole, "Declare circles of this many nodes; without it, nodes find their own.",
            "N",
        ),
        Setting("alone", "sim.alone", read_whole, "Nodes to train alone as well, for comparison.", "N"),
    ]
)  # fmt: skip


# Training options that one of several jobs may have for itself.
JOB_KEYS = frozenset(key for key, item in SETTINGS.items() if item.field.startswith("train."))


def keys_of(record: str) -> tuple[str, ...]:
    """The keys of all options in one record of Options, such as `limits`."""
    return tuple(key for key, item in SETTINGS.items() if item.field.partition(".")[0] == record)
