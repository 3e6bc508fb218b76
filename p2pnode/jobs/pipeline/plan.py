"""The plan of a pipeline job, which all members agree on, and the options of one node. Light: torch is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

import msgspec

from ...config.options import Options, TrainOptions
from ...config.settings import read_jobs
from ...config.units import read_size
from ...wire.errors import UsageError, suggestion
from ..contract import JobSettings
from ..train.plan import TrainPlan, write_plan
from .messages import MAX_TENSOR_BYTES
from .spans import MAX_BLOCKS
from .tensors import encoded_size

KIND_NAME = "pipeline"
ROLES = ("both", "serve", "drive")
MAX_MICRO_BATCH = 64

Role = Literal["both", "serve", "drive"]
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]


class PipelinePlan(msgspec.Struct, frozen=True):
    """What all members of a pipeline agree on."""

    train: TrainPlan
    blocks: Annotated[int, msgspec.Meta(ge=2, le=MAX_BLOCKS)]
    hidden: Annotated[tuple[Size, ...], msgspec.Meta(min_length=1, max_length=3)]  # hidden states of one sample
    micro_batch: Annotated[int, msgspec.Meta(ge=1, le=MAX_MICRO_BATCH)] = 4
    batch: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16  # samples for a step of all servers of a block together
    bits: Literal[4, 8] = 8

    def __post_init__(self) -> None:
        if encoded_size(self.shape(self.micro_batch), self.bits) > MAX_TENSOR_BYTES:
            raise ValueError("a micro-batch is larger than a call may be")

    def shape(self, samples: int) -> tuple[int, ...]:
        """The shape of the hidden states of some samples."""
        return (samples, *self.hidden)


@dataclass(frozen=True)
class PipelineOptions:
    """What this node's user wrote: how it trains here, and what a founder sets."""

    train: TrainOptions
    role: Role = "both"
    memory: int | None = None  # bytes that its blocks may take; None: a half of what is free
    span: int = 0  # blocks that it holds at most; 0: as many as the memory allows
    in_flight: int = 0  # micro-batches at a time; 0: by the number of servers
    check: float = 0.02  # share of calls that a second server repeats
    micro_batch: int = 0  # 0: the largest of up to 4 samples that fits a call
    batch: int = 0  # 0: the task's
    bits: int = 8

    @property
    def serves(self) -> bool:
        return self.role != "drive"

    @property
    def drives(self) -> bool:
        return self.role != "serve"


NUMBERS = {
    "span": (0, MAX_BLOCKS),
    "in_flight": (0, 256),
    "micro_batch": (0, MAX_MICRO_BATCH),
    "batch": (0, 4096),
    "bits": (4, 8),
}
OWN = (*NUMBERS, "role", "memory", "check")


def read_options(settings: JobSettings) -> PipelineOptions:
    """The options of a pipeline job; UsageError in one line when something in them is wrong."""
    given = dict(settings.given)
    own = {key: given.pop(key) for key in OWN if key in given}
    jobs = read_jobs([{"name": settings.name, **given}]) if given else ()
    train = Options(train=settings.node.train, jobs=jobs).train_options(settings.name, settings.alone)
    role = str(own.pop("role", "serve" if settings.node.serve_only else "both"))
    if role not in ROLES:
        raise UsageError(f"the job {settings.name!r}: role={role[:40]} is unknown; {suggestion(role, ROLES)}")
    memory = own.pop("memory", None)
    check = _number(settings.name, "check", own.pop("check", 0.02), 0.0, 1.0)
    numbers = {key: int(_number(settings.name, key, value, *NUMBERS[key])) for key, value in own.items()}
    if numbers.get("bits", 8) not in (4, 8):
        raise UsageError(f"the job {settings.name!r}: bits={numbers['bits']} must be 4 or 8")
    size = None if memory is None else int(read_size(str(memory)))
    return PipelineOptions(train, role, size, check=check, **numbers)  # type: ignore[arg-type]


def _number(job: str, key: str, value: object, low: float, high: float) -> float:
    try:
        found = float(str(value))
    except ValueError:
        found = float("nan")
    if not low <= found <= high or (key in NUMBERS and found != int(found)):
        name = key.replace("_", "-")
        raise UsageError(f"the job {job!r}: {name}={str(value)[:40]} must be a number from {low:g} to {high:g}")
    return found


def read_plan(plan: dict[str, Any]) -> PipelinePlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, PipelinePlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for a pipeline cannot be followed: {error}") from None


def write_pipeline_plan(plan: PipelinePlan) -> dict[str, Any]:
    """The plan as a manifest has it."""
    written: dict[str, Any] = msgspec.to_builtins(plan)
    return {**written, "train": write_plan(plan.train)}


def largest_micro_batch(hidden: tuple[int, ...], bits: int, wanted: int) -> int:
    """The wanted micro-batch, or up to 4 samples where none is wanted; UsageError when it does not fit a call."""
    sizes = [wanted] if wanted else [4, 3, 2, 1]
    for size in sizes:
        if encoded_size((size, *hidden), bits) <= MAX_TENSOR_BYTES:
            return size
    one = encoded_size((1, *hidden), bits)
    shape = "x".join(str(size) for size in hidden)
    remedy = "choose a smaller micro-batch" if one <= MAX_TENSOR_BYTES else "choose a smaller context or width"
    raise UsageError(
        f"{sizes[-1]} samples between two blocks ({shape} = {prod(hidden):,} numbers each) take "
        f"{encoded_size((sizes[-1], *hidden), bits):,} bytes, and a call may have {MAX_TENSOR_BYTES:,}; {remedy}"
    )
