"""The plan of a train job: what its members must agree on. Light: it is read where nothing is trained, too."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...config.until import MOST_STEPS
from ...wire.errors import UsageError
from ...wire.messages import MAX_JOB_FILE_BYTES
from ...wire.run import MAX_PAIRS, Aim, Manifest
from ...wire.types import Sketch

KIND_NAME = "train"
MAX_PARAMETERS = 10_000_000_000

ShortText = Annotated[str, msgspec.Meta(max_length=120)]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
TaskOptions = Annotated[dict[ShortText, bool | int | float | ShortText], msgspec.Meta(max_length=MAX_PAIRS)]
Settings = Annotated[dict[ShortText, float], msgspec.Meta(max_length=MAX_PAIRS)]


INSTALL = r"^([A-Za-z0-9][A-Za-z0-9._+:/@=~-]{0,199})?\Z"  # what a user may paste behind `pip install`


class TaskSource(msgspec.Struct, frozen=True):
    """The file that a task comes from. Members give it to those who join, who are asked whether it may run."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,40}\.py\Z")]
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_JOB_FILE_BYTES)]
    sha256: Digest
    name: Annotated[str, msgspec.Meta(pattern=r"^(:[A-Za-z_][A-Za-z0-9_]{0,79})?\Z")] = ""  # of the class, as :Class


class PlanPackage(msgspec.Struct, frozen=True):
    """The package that a task comes from, for those who have to install it."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,80}\Z")]
    version: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.!+_-]{1,40}\Z")]
    install: Annotated[str, msgspec.Meta(pattern=INSTALL)] = ""  # "": its metadata do not say how


class ModelSketch(msgspec.Struct, frozen=True):
    """The founder's model in a few numbers. Empty: that cannot be compared."""

    fixed_count: Annotated[int, msgspec.Meta(ge=0)] = 0  # frozen parameters and buffers
    fixed: Annotated[tuple[Sketch, ...], msgspec.Meta(max_length=64)] = ()
    inputs: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""  # hash of the probe without its labels
    outputs: Sketch = ()  # on the probe, with weights that every machine can make
    losses: Sketch = ()


class TrainPlan(msgspec.Struct, frozen=True):
    """What is trained in a job and how: everything two nodes must agree on to add up their work."""

    task: ShortText  # its name; the code is what is installed, what the user named, or a file that the user accepted
    version: ShortText
    options: TaskOptions
    parameters: Annotated[int, msgspec.Meta(gt=0, le=MAX_PARAMETERS)]
    layout: Digest
    genesis: Digest  # hash of the weights that the seed gives
    probe: Digest
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    data: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""  # hash of the founder's
    model: ModelSketch = ModelSketch()
    policy: ShortText = "deltaset"
    settings: Settings = msgspec.field(default_factory=dict)
    round_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 2.0
    max_steps: Annotated[int, msgspec.Meta(gt=0, le=100_000)] = 200  # local steps of one round
    steps: Annotated[int, msgspec.Meta(ge=0, le=MOST_STEPS)] = 0  # the run's planned length; 0: it has no end
    aim: Aim = "shared"
    source: TaskSource | None = None
    package: PlanPackage | None = None


def read_plan(plan: dict[str, Any]) -> TrainPlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, TrainPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for training cannot be followed: {error}") from None


def write_plan(plan: TrainPlan) -> dict[str, Any]:
    """The plan as a manifest has it, without what it does not have."""
    written: dict[str, Any] = msgspec.to_builtins(plan)
    return {key: value for key, value in written.items() if value is not None}


def train_plans(manifest: Manifest | None) -> dict[str, TrainPlan]:
    """The train jobs of a run by name, in the manifest's order; those that cannot be read are left out."""
    found: dict[str, TrainPlan] = {}
    for entry in () if manifest is None else manifest.jobs:
        if entry.kind == KIND_NAME:
            try:
                found[entry.name] = read_plan(entry.plan)
            except UsageError:
                continue
    return found


def first_plan(manifest: Manifest | None) -> TrainPlan | None:
    """The plan of the run's first train job; None where nothing is trained."""
    return next(iter(train_plans(manifest).values()), None)
