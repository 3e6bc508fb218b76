"""What members of a loop job agree on, and bytes of strangers that claim to be it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.contract import JobSettings
from p2pnode.jobs.loop.genesis import checked_genesis, keep_genesis, saved_genesis
from p2pnode.jobs.loop.plan import LoopPlan, difference, pack_rows, read_plan, rows_hash, unpack_rows, write_plan
from p2pnode.jobs.loop.prepare import read
from p2pnode.merging.deltaset.set import weights_hash
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.errors import UsageError

ROWS = (("a.weight", "float32", (3, 2)), ("a.bias", "float32", (3,)))
ROW = st.tuples(st.text(max_size=9), st.sampled_from(["float32", "bfloat16"]), st.lists(st.integers(1, 9)).map(tuple))


def plan(units: Any, **given: Any) -> LoopPlan:
    return LoopPlan("t", "1", len(units), rows_hash(ROWS), weights_hash(units).hex(), 7, pack_rows(ROWS), **given)


@given(st.lists(ROW).map(tuple))
def test_a_table_of_parameters_comes_back_as_it_was(rows: Any) -> None:
    assert unpack_rows(pack_rows(rows)) == rows


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_none(data: bytes) -> None:
    unpack_rows(data)
    unpack_rows(zstandard.ZstdCompressor().compress(data))


def test_a_table_that_would_unpack_to_gigabytes_is_none() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    assert len(bomb) < 24_000
    assert unpack_rows(bomb) is None


def test_a_large_models_table_is_left_out_and_the_hash_still_tells() -> None:
    rows = tuple(
        (f"{index:x}{weights_hash(np.full(1, index, np.int32)).hex()}", "float32", (1,)) for index in range(999)
    )
    assert pack_rows(rows) == b""
    assert rows_hash(rows) != rows_hash(rows[:-1])
    assert difference(None, rows) == "its parameters have other names, types or shapes"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ((ROWS[0],), "the run's parameter a.bias (float32 [3]) is missing here, frozen, or not in the optimizer"),
        ((*ROWS, ("b", "float32", (1,))), "parameter b (float32 [1]) is trained here and not in the run"),
        ((("a.weight", "bfloat16", (3, 2)), ROWS[1]), "parameter a.weight is bfloat16 [3, 2] here and float32 [3, 2]"),
        (tuple(reversed(ROWS)), "its parameters are in another order"),
    ],
)
def test_the_difference_is_named(own: Any, said: str) -> None:
    assert said in difference(ROWS, own)


def test_a_plan_is_read_as_it_was_written_and_nonsense_is_refused() -> None:
    made = plan(np.arange(4, dtype=np.int32))
    assert read_plan(msgspec.msgpack.decode(msgspec.msgpack.encode(write_plan(made)))) == made
    with pytest.raises(UsageError, match="cannot be followed"):
        read_plan({**write_plan(made), "max_steps": -1})


def test_only_the_manifests_weights_are_the_genesis() -> None:
    units = np.arange(1000, dtype=np.int32)
    made, content = plan(units), units.tobytes()
    assert np.array_equal(checked_genesis(content, made), units)  # type: ignore[arg-type]
    assert checked_genesis(content[:-4], made) is None
    assert checked_genesis(content[:-1] + b"\1", made) is None
    storage = MemoryStorage()
    assert saved_genesis(storage, "here", made) is None
    keep_genesis(storage, "here", units)
    assert np.array_equal(saved_genesis(storage, "here", made), units)  # type: ignore[arg-type]


def test_a_run_of_loops_is_not_joined_from_the_command_line() -> None:
    with pytest.raises(UsageError, match=r"take part from yours: p2pnode.join\(model, optimizer, CODE\)"):
        read(JobSettings("main", JobOptions("main", "loop").given, Options(data_dir=Path()), True))
