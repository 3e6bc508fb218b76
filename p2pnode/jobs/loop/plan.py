"""The plan of a loop job: which model is shared and how. Light: it is read where nothing is trained, too."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import zstandard
from blake3 import blake3

from ...wire.errors import UsageError
from ...wire.run import MAX_PAIRS, Aim
from ...wire.types import decoded

KIND_NAME = "loop"
MAX_PARAMETERS = 10_000_000_000
MAX_TABLE_BYTES = 24_000  # compressed; larger tables are left out, and only their hash is compared
MAX_TABLE_ROWS_BYTES = 1 << 20

ShortText = Annotated[str, msgspec.Meta(max_length=120)]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Settings = Annotated[dict[ShortText, float], msgspec.Meta(max_length=MAX_PAIRS)]
TensorRow = tuple[str, str, tuple[int, ...]]  # name, type, shape
TensorRows = tuple[TensorRow, ...]


class PlannedColumn(msgspec.Struct, frozen=True):
    """One column of the samples that travel, and the range of its numbers."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    kind: Annotated[str, msgspec.Meta(pattern=r"^(\|[biu]1|<[iuf][248])\Z")]  # numpy's name of the type
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=1 << 31)], ...], msgspec.Meta(max_length=8)]
    low: float
    high: float


class LoopPlan(msgspec.Struct, frozen=True):
    """What members agree on: the shared tensors, by hash and by name, and how they are merged."""

    task: ShortText  # what its founder calls it
    version: ShortText
    parameters: Annotated[int, msgspec.Meta(gt=0, le=MAX_PARAMETERS)]
    layout: Digest  # of names, types and shapes
    genesis: Digest  # hash of the founder's weights
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    table: Annotated[bytes, msgspec.Meta(max_length=MAX_TABLE_BYTES)] = b""  # the tensors, to say which one differs
    buffers: ShortText = "own"
    probe: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""  # hash of the founder's; "": it gave none
    policy: ShortText = "deltaset"
    settings: Settings = msgspec.field(default_factory=dict)
    round_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 2.0
    max_steps: Annotated[int, msgspec.Meta(gt=0, le=10_000)] = 200
    aim: Aim = "shared"
    samples: Annotated[tuple[PlannedColumn, ...], msgspec.Meta(max_length=32)] = ()  # that travel; (): none do


def read_plan(plan: dict[str, Any]) -> LoopPlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, LoopPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for a training loop cannot be followed: {error}") from None


def write_plan(plan: LoopPlan) -> dict[str, Any]:
    """The plan as a manifest has it."""
    written: dict[str, Any] = msgspec.to_builtins(plan, builtin_types=(bytes,))
    return written


def rows_hash(rows: TensorRows) -> str:
    """A hash by which members see whether they share the same tensors."""
    return blake3(msgspec.msgpack.encode(("p2pnode loop layout 1", rows))).hexdigest()


def pack_rows(rows: TensorRows) -> bytes:
    """The tensors in few bytes; b"" where that takes too many."""
    packed = zstandard.ZstdCompressor(level=19).compress(msgspec.msgpack.encode(rows))
    return packed if len(packed) <= MAX_TABLE_BYTES else b""


_rows_decoder = msgspec.msgpack.Decoder(TensorRows)


def unpack_rows(packed: bytes) -> TensorRows | None:
    """The tensors that `pack_rows` packed; None where they were left out, or are nothing that can be read."""
    if not packed:
        return None
    try:
        if zstandard.frame_content_size(packed) > MAX_TABLE_ROWS_BYTES:
            return None
        raw = zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_TABLE_ROWS_BYTES)
        return decoded(_rows_decoder, raw, "table of parameters")
    except (zstandard.ZstdError, ValueError):
        return None


def difference(run: TensorRows | None, own: TensorRows) -> str:
    """Which parameter of this model is not the run's, in words."""
    if run is None:
        return "its parameters have other names, types or shapes"
    theirs, mine = {row[0]: row for row in run}, {row[0]: row for row in own}
    for name, row in theirs.items():
        if name not in mine:
            return f"the run's parameter {name} ({_shown(row)}) is missing here, frozen, or not in the optimizer"
        if mine[name] != row:
            return f"parameter {name} is {_shown(mine[name])} here and {_shown(row)} in the run"
    extra = [name for name in mine if name not in theirs]
    if extra:
        return f"parameter {extra[0]} ({_shown(mine[extra[0]])}) is trained here and not in the run"
    return "its parameters are in another order"


_TYPES = {"f": "float", "i": "int", "u": "uint", "b": "bool"}


def different_samples(run: tuple[PlannedColumn, ...], own: tuple[PlannedColumn, ...]) -> str:
    """How samples here differ from those that travel in the run, in words; "" when they do not."""
    theirs, mine = ({column.name: (column.kind, column.shape) for column in columns} for columns in (run, own))
    if theirs.keys() != mine.keys():
        return f"its samples have the columns {', '.join(sorted(mine))}, and the run's {', '.join(sorted(theirs))}"
    for name in sorted(mine):
        if mine[name] != theirs[name]:
            here, there = (_shown_column(*columns[name]) for columns in (mine, theirs))
            return f"its samples have {name} as {here}, and the run's as {there}"
    return ""


def _shown_column(kind: str, shape: tuple[int, ...]) -> str:
    return f"{_TYPES[kind[1]]}{8 * int(kind[2])} {list(shape)}"


def _shown(row: TensorRow) -> str:
    return f"{row[1]} {list(row[2])}"
