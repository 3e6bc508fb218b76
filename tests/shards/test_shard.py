"""Shards: every sample once, the same everywhere, named by what is in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.shards.rows import listed
from p2pnode.shards.shard import cut_shards, indices_of, shard_id
from p2pnode.tasks.digits import Digits


def columns(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 255, (count, 3), dtype=np.uint8), "y": rng.integers(0, 9, count)}


@settings(deadline=None, max_examples=40)
@given(count=st.integers(0, 700), size=st.integers(1, 250), seed=st.integers(0, 2**32))
def test_every_sample_is_in_exactly_one_shard(count, size, seed):
    shards = cut_shards(columns(count), seed, size)
    assert np.array_equal(indices_of(shards), np.arange(count))
    lengths = {len(shard) for shard in shards}
    assert not lengths or max(lengths) - min(lengths) <= 1


def test_equal_data_seed_and_size_give_equal_shards():
    one, other = cut_shards(columns(500), 7), cut_shards(columns(500), 7)
    assert [shard.id for shard in one] == [shard.id for shard in other]
    assert [shard.id for shard in cut_shards(columns(500), 8)] != [shard.id for shard in one]


def test_the_name_is_of_the_content_not_of_the_place():
    samples = columns(10)
    moved = {name: np.concatenate([column[5:], column[:5]]) for name, column in samples.items()}
    assert shard_id(samples, np.arange(5)) == shard_id(moved, np.arange(5, 10))


@pytest.mark.parametrize("change", ["value", "name", "kind", "shape"])
def test_any_other_content_has_another_name(change):
    samples = columns(10)
    changed = {name: column.copy() for name, column in samples.items()}
    if change == "value":
        changed["x"][3, 0] ^= 1
    elif change == "name":
        changed["z"] = changed.pop("y")
    elif change == "kind":
        changed["y"] = changed["y"].astype(np.int32)
    else:
        changed["x"] = changed["x"].reshape(10, 3, 1)
    assert shard_id(samples, np.arange(10)) != shard_id(changed, np.arange(10))


def test_the_byte_order_of_a_machine_does_not_show():
    samples = columns(10)
    swapped = {**samples, "y": samples["y"].astype(">i8")}
    assert shard_id(samples, np.arange(10)) == shard_id(swapped, np.arange(10))


def test_shards_mix_classes():
    data = {name: column.numpy() for name, column in Digits().data().items()}
    for shard in cut_shards(data, seed=1):
        assert 90 <= len(shard) <= 110
        assert len(np.unique(data["y"][listed(shard.indices)])) == 10


def test_known_names_stay():
    """What is stored and announced by name must not change with the code, the machine or numpy's version."""
    samples = {"x": np.arange(6, dtype=np.uint8).reshape(3, 2), "y": np.array([1, 2, 3])}
    assert shard_id(samples, np.arange(3)) == "c39bfe83d45f56cfbd4e6d55a5cf32c3"
    assert [listed(shard.indices).tolist() for shard in cut_shards(samples, seed=9, size=1)] == [[1], [2], [0]]
