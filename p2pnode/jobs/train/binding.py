"""Makes a plan that others can follow from a task, and a model host to train on from a plan."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...compression.weights import to_units
from ...config.options import DEFAULT_AIM, DEFAULT_POLICY, DEFAULT_ROUND_SECONDS, DEFAULT_TASK, TrainOptions
from ...merging.deltaset.set import weights_hash
from ...runtime.seams import Shared, make_at_once
from ...similarity.sketch import distance, shared_weights
from ...tasks.data import hash_columns
from ...tasks.errors import task_errors
from ...tasks.find import installed_task, load_task
from ...tasks.task import Option, Task, as_option, option_defaults
from ...training.function_sketch import fixed_parts, fixed_sketches, function_sketch, group_of
from ...training.host import ModelHost
from ...wire.errors import LocalProblem, UsageError
from ...wire.types import Sketch
from ..model.policies import check_policy
from .plan import ModelSketch, TrainPlan


def open_model_host(
    options: TrainOptions, seed: int, installed_only: bool = False, shared: Shared = make_at_once
) -> ModelHost:
    """Load the task and build its model and data. Takes seconds the first time: it imports torch.

    `installed_only`: the task was named by a run's founder, so only built-in and installed code may be loaded.
    """
    task = options.task or DEFAULT_TASK
    task_options = repr(sorted((key, str(value)) for key, value in options.task_options.items()))
    return shared(
        ("model host", task, task_options, options.data, options.device, seed),
        lambda: ModelHost(open_task(options, installed_only), options.device, seed),
    )


def open_task(options: TrainOptions, installed_only: bool = False) -> Task:
    """The task that the options name, without its data. UsageError or TaskProblem when there is none."""
    load, source = installed_task if installed_only else load_task, None if options.data is None else str(options.data)
    return load(options.task or DEFAULT_TASK, options.task_options, source)


def make_plan(model_host: ModelHost, options: TrainOptions, seed: int) -> TrainPlan:
    """The plan a founder signs. UsageError when the policy is not known here, or not with these settings."""
    policy = options.policy or DEFAULT_POLICY
    suited = model_host.task.deltaset_settings if policy == DEFAULT_POLICY else {}
    settings = {**suited, **options.settings}
    check_policy(policy, settings)
    return TrainPlan(
        task=model_host.task.name,
        version=model_host.task.version,
        options=model_host.task.options,
        parameters=model_host.layout.size,
        layout=model_host.layout.hash,
        genesis=weights_hash(to_units(model_host.genesis)).hex(),
        probe=probe_hash(model_host),
        model=model_sketch(model_host),
        data=data_hash(model_host),
        seed=seed,
        policy=policy,
        settings=settings,
        round_seconds=options.round_seconds or DEFAULT_ROUND_SECONDS,
        max_steps=options.max_steps,
        steps=int(options.until.amount) if options.until is not None and options.until.what == "steps" else 0,
        aim=options.aim or DEFAULT_AIM,
    )


def follow_plan(plan: TrainPlan, own: TrainOptions, shared: Shared = make_at_once) -> ModelHost:
    """Open the task of a run's plan; UsageError when what is installed or was given here does not agree with it.

    The task's code is what the user named or accepted, or what is installed under the plan's name.
    The genesis may differ (another torch, another device): then the weights come from a peer.
    """
    _check_wishes(plan, own)
    options, installed_only = task_options_of(plan, own), own.task is None
    if own.task is not None:
        _check_name(plan, own)
    with _not_here(plan):
        model_host = open_model_host(options, plan.seed, installed_only, shared)
    _check_task(plan, own, model_host.task)
    same_options = model_host.task.options == plan.options
    if same_options and model_host.layout.hash != plan.layout:
        raise _other_version(plan, model_host.task, f" with {model_host.layout.size:,}")
    return model_host


def check_plan(plan: TrainPlan, own: TrainOptions) -> None:
    """What `follow_plan` finds out without the data and the model: UsageError as there."""
    _check_wishes(plan, own)
    if own.task is None and plan.source is not None:
        return  # members of the run have the task's file
    if own.task is not None:
        _check_name(plan, own)
    with _not_here(plan):
        task = open_task(task_options_of(plan, own), installed_only=own.task is None)
    _check_task(plan, own, task)


def task_options_of(plan: TrainPlan, own: TrainOptions) -> TrainOptions:
    """What opens the plan's task here."""
    return TrainOptions(own.task or plan.task, {**own.task_options, **plan.options}, own.data, own.device)


@contextlib.contextmanager
def _not_here(plan: TrainPlan) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"this run learns {plan.task!r}, which is not to be had here: {error}") from None


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


def _check_name(plan: TrainPlan, own: TrainOptions) -> None:
    name = open_task(own).name
    if name != plan.task:
        raise UsageError(f"--task {own.task} is {name!r}, and this run learns {plan.task!r}; leave --task out")


def _check_task(plan: TrainPlan, own: TrainOptions, task: Task) -> None:
    if task.version != plan.version:
        raise _other_version(plan, task)
    for key, value in own.task_options.items():
        if key not in task.LOCAL and as_option(task.name, key, value, getattr(task, key)) != _planned(plan, task, key):
            planned = _planned(plan, task, key)
            raise UsageError(
                f"--task-option {key}={value} contradicts the run, which has {key}={planned}; leave it out"
            )


def _other_version(plan: TrainPlan, task: Task, size: str = "") -> UsageError:
    return UsageError(
        f"this run learns {plan.task!r} version {plan.version} with {plan.parameters:,} parameters; installed here "
        f"is version {task.version}{size}; install the same version"
    )


def _planned(plan: TrainPlan, task: Task, key: str) -> Option:
    return plan.options.get(key, option_defaults(type(task))[key])


def has_genesis(plan: TrainPlan, model_host: ModelHost) -> bool:
    """Whether this machine's seed gives the run's first weights."""
    return weights_hash(to_units(model_host.genesis)).hex() == plan.genesis


SAME_FIXED = 0.005  # distance of fixed parts; storing them in 16 bits moves them by 0.001
SAME_FUNCTION = 0.03  # distance of outputs and losses; TensorFloat-32 moves deep models by 0.01
SHARED_WEIGHTS = "p2pnode test weights 1"


def model_sketch(model_host: ModelHost) -> ModelSketch:
    """Heavy. What members compare their model with. The weights are shared ones, which do not depend on torch."""
    found = function_sketch(model_host, shared_weights(model_host.layout, SHARED_WEIGHTS))
    fixed = tuple(fixed_sketches(model_host))
    return ModelSketch(len(fixed_parts(model_host)), fixed, inputs_hash(model_host), found.outputs, found.losses)


def check_model(plan: TrainPlan, model_host: ModelHost, shared: Shared = make_at_once) -> bool:
    """Heavy. UsageError when the model here is not the founder's. Returns whether all that it computes was compared."""
    own = shared(("model sketch", id(model_host)), lambda: model_sketch(model_host))
    same_probe = bool(own.inputs) and probe_hash(model_host) == plan.probe
    different = _different_parts(plan.model, own, model_host) or _different_function(plan.model, own, same_probe)
    if different:
        raise UsageError(f"this node's model of {plan.task!r} is not the run's: {different}")
    return same_probe and bool(plan.model.losses and own.losses)


def _different_parts(run: ModelSketch, own: ModelSketch, model_host: ModelHost) -> str:
    """Which frozen parameter or buffer differs, in words; "" when none does."""
    if run.fixed_count != own.fixed_count:
        return (
            f"it has {own.fixed_count} frozen parameters and buffers, the founder's has {run.fixed_count}; "
            "use the founder's version of the task"
        )
    parts = fixed_parts(model_host)
    for group, (theirs, mine) in enumerate(zip(run.fixed, own.fixed, strict=False)):
        if theirs and mine and not distance(theirs, mine) <= SAME_FIXED:
            names = [name for place, (name, _) in enumerate(parts) if group_of(place, len(parts)) == group]
            among = "" if len(names) == 1 else f" or one of the {len(names) - 1} after it"
            remedy = "use the same pretrained file and the founder's version of the task"
            return f"{names[0]}{among} has other values than the founder's; {remedy}"
    return ""


def _different_function(run: ModelSketch, own: ModelSketch, same_probe: bool) -> str:
    """How the outputs or the losses on the probe differ, in words; "" when they do not, or cannot be compared."""
    if not own.inputs or run.inputs != own.inputs:
        return ""
    if different_outputs(run.outputs, own.outputs):
        return f"with equal weights its {OUTPUTS_DIFFER}"
    if not same_probe:
        return "the probe's inputs are the run's but its labels are not; number the classes as the founder does"
    if different_outputs(run.losses, own.losses):
        return f"with equal weights its {LOSSES_DIFFER}"
    return ""


OUTPUTS_DIFFER = (
    "outputs on the run's probe are others: an activation or another part of forward() differs; "
    "use the founder's version of the task"
)
LOSSES_DIFFER = (
    "outputs on the run's probe are the same but its losses are not: loss() or losses() differs; "
    "use the founder's version of the task"
)


def different_outputs(theirs: Sketch, mine: Sketch) -> bool:
    """Whether two sketches of outputs or losses are of different functions; False when one is missing."""
    return bool(theirs and mine) and not distance(theirs, mine) <= SAME_FUNCTION


def inputs_hash(model_host: ModelHost) -> str:
    """The hash of the probe without its labels; "" where the task gives none."""
    try:
        with task_errors(model_host.task, "probe"):
            probe = model_host.task.probe()
            labels = model_host.task.labels(probe)
    except LocalProblem:
        return ""  # which comparing fingerprints reports
    return hash_columns({name: column for name, column in probe.items() if column is not labels})


def probe_hash(model_host: ModelHost) -> str:
    return hash_columns(model_host.task.probe())


def data_hash(model_host: ModelHost) -> str:
    """The hash by which nodes see whether they have the same data."""
    return model_host.data.hash()
