"""From a task to a plan that others can follow, and from a plan back to a model host to train on."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from ...compression.weights import to_units
from ...config.options import DEFAULT_AIM, DEFAULT_POLICY, DEFAULT_ROUND_SECONDS, DEFAULT_TASK, TrainOptions
from ...merging.deltaset.set import weights_hash
from ...merging.policy import MakePolicy
from ...merging.registry import check_settings, policy_named
from ...runtime.seams import Shared, make_at_once
from ...similarity.partners import RANGES, without_partner_settings
from ...tasks.find import installed_task, load_task
from ...tasks.task import Option, Samples, Task, as_option, option_defaults
from ...training.host import ModelHost
from ...wire.errors import UsageError
from .plan import TrainPlan


def open_model_host(
    options: TrainOptions, seed: int, installed_only: bool = False, shared: Shared = make_at_once
) -> ModelHost:
    """Load the task and build its model and data. Takes seconds the first time: it imports torch.

    `installed_only`: the task was named by a run's founder, so only built-in and installed code may be loaded.
    """
    task, load = options.task or DEFAULT_TASK, installed_task if installed_only else load_task
    task_options = repr(sorted((key, str(value)) for key, value in options.task_options.items()))
    return shared(
        ("model host", task, task_options, options.data, options.device, seed),
        lambda: ModelHost(load(task, options.task_options, _source(options)), options.device, seed),
    )


def _source(options: TrainOptions) -> str | None:
    return None if options.data is None else str(options.data)


def make_plan(model_host: ModelHost, options: TrainOptions, seed: int) -> TrainPlan:
    """The plan a founder signs. UsageError when the policy is not known here, or not with these settings."""
    policy = options.policy or DEFAULT_POLICY
    known_policy(policy)
    try:
        check_settings(policy, without_partner_settings(options.settings), besides=RANGES)
    except ValueError as error:
        raise UsageError(f"--set: {error}") from None
    return TrainPlan(
        task=model_host.task.name,
        version=model_host.task.version,
        options=model_host.task.options,
        parameters=model_host.layout.size,
        layout=model_host.layout.hash,
        genesis=weights_hash(to_units(model_host.genesis)).hex(),
        probe=probe_hash(model_host),
        data=data_hash(model_host),
        seed=seed,
        policy=policy,
        settings=dict(options.settings),
        round_seconds=options.round_seconds or DEFAULT_ROUND_SECONDS,
        max_steps=options.max_steps,
        aim=options.aim or DEFAULT_AIM,
    )


def known_policy(name: str) -> MakePolicy:
    try:
        return policy_named(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def follow_plan(plan: TrainPlan, own: TrainOptions, shared: Shared = make_at_once) -> ModelHost:
    """Open the task of a run's plan; UsageError when what is installed or was given here does not agree with it.

    The task's code is what the user named or accepted, or what is installed under the plan's name.
    The genesis may differ (another torch, another device): then the weights come from a peer.
    """
    _check_wishes(plan, own)
    if own.task is not None:
        _check_name(plan, own.task, own)
    task_options = {**own.task_options, **plan.options}
    options = TrainOptions(own.task or plan.task, task_options, own.data, own.device)
    try:
        model_host = open_model_host(options, plan.seed, installed_only=own.task is None, shared=shared)
    except UsageError as error:
        raise UsageError(f"this run learns {plan.task!r}, which is not to be had here: {error}") from None
    _check_task(plan, own, model_host)
    return model_host


def _check_wishes(plan: TrainPlan, own: TrainOptions) -> None:
    """UsageError when the user gave an option that differs from the run's."""
    given: list[tuple[str, object, object]] = [  # flag, wanted, planned
        ("--policy ", own.policy, plan.policy),
        ("--aim ", own.aim, plan.aim),
        ("--round-seconds ", own.round_seconds, plan.round_seconds),
    ]
    given += [(f"--set {key}=", value, plan.settings.get(key)) for key, value in own.settings.items()]
    for flag, wanted, planned in given:
        if wanted is not None and wanted != planned:
            fixed = "does not set it" if planned is None else f"has {planned}"
            raise UsageError(f"{flag}{wanted} contradicts the run, which {fixed}; leave it out, or --found a new run")


def _check_name(plan: TrainPlan, task: str, own: TrainOptions) -> None:
    name = load_task(task, own.task_options, _source(own)).name
    if name != plan.task:
        raise UsageError(f"--task {task} is {name!r}, and this run learns {plan.task!r}; leave --task out")


def _check_task(plan: TrainPlan, own: TrainOptions, model_host: ModelHost) -> None:
    task = model_host.task
    if task.version != plan.version or (task.options == plan.options and model_host.layout.hash != plan.layout):
        raise UsageError(
            f"this run learns {plan.task!r} version {plan.version} with {plan.parameters:,} parameters; installed here "
            f"is version {task.version} with {model_host.layout.size:,}; install the same version"
        )
    for key, value in own.task_options.items():
        if key not in task.LOCAL and as_option(task.name, key, value, getattr(task, key)) != _planned(plan, task, key):
            planned = _planned(plan, task, key)
            raise UsageError(
                f"--task-option {key}={value} contradicts the run, which has {key}={planned}; leave it out"
            )


def _planned(plan: TrainPlan, task: Task, key: str) -> Option:
    return plan.options.get(key, option_defaults(type(task))[key])


def has_genesis(plan: TrainPlan, model_host: ModelHost) -> bool:
    """Whether this machine's seed gives the run's first weights."""
    return weights_hash(to_units(model_host.genesis)).hex() == plan.genesis


def probe_hash(model_host: ModelHost) -> str:
    return _hash(model_host.task.probe())


def data_hash(model_host: ModelHost) -> str:
    """The hash by which nodes see whether they have the same data."""
    return _hash(model_host.data)


def _hash(samples: Samples) -> str:
    digest = blake3()
    for name, column in sorted(samples.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column.numpy()).tobytes())
    return digest.hexdigest()
