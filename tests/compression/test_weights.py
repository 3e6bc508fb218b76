"""Weights as a vector, and the grid they are added on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p2pnode.compression.weights import (
    MAX_UNITS,
    UNIT,
    WeightLayout,
    from_units,
    layout_of,
    norm_squared,
    read_weights,
    to_units,
)


class Tied(torch.nn.Module):
    """Weights used twice, a frozen parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 3)
        self.head = torch.nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = torch.nn.Parameter(torch.ones(5), requires_grad=False)
        self.norm = torch.nn.BatchNorm1d(3)


def test_a_layout_has_tied_weights_once_and_no_frozen_ones_or_buffers() -> None:
    layout = layout_of(Tied())
    assert layout.parameters == (("embed.weight", (7, 3)), ("norm.weight", (3,)), ("norm.bias", (3,)))
    assert layout.size == 27
    assert layout.layers() == {"embed.weight": slice(0, 21), "norm.weight": slice(21, 24), "norm.bias": slice(24, 27)}


def test_weights_that_share_storage_under_two_parameters_are_tied_too() -> None:
    first, second = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    second.weight = torch.nn.Parameter(first.weight.data)
    layout = layout_of(torch.nn.Sequential(first, second))
    assert [name for name, _ in layout.parameters] == ["0.weight"]


def test_parameters_that_overlap_in_part_are_refused() -> None:
    model = torch.nn.Module()
    model.whole = torch.nn.Parameter(torch.zeros(6))
    model.part = torch.nn.Parameter(model.whole.data[:3])
    with pytest.raises(ValueError, match="whole and part share storage"):
        layout_of(model)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(ValueError, match="0 trainable"):
        layout_of(torch.nn.Flatten())


def test_the_hash_tells_layouts_apart() -> None:
    one, other = WeightLayout((("a", (2, 3)),)), WeightLayout((("a", (3, 2)),))
    assert one.hash != other.hash
    assert one.hash == WeightLayout((("a", (2, 3)),)).hash
    assert len(one.hash) == 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_of_any_precision_are_read_as_float32(dtype: torch.dtype) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LSTM(3, 2)).to(dtype)
    layout = layout_of(model)
    vector = np.linspace(-1, 1, layout.size, dtype=np.float32)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(vector).to(dtype), model.parameters())
    read = read_weights(model, layout)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, vector, atol=0 if dtype != torch.bfloat16 else 0.01)
    assert read.flags.owndata
    assert read.flags.writeable


def test_parameters_that_do_not_lie_in_order_are_read_in_order() -> None:
    model = torch.nn.Linear(4, 3, bias=False)
    model.weight = torch.nn.Parameter(torch.arange(12.0).reshape(4, 3).t())
    assert read_weights(model, layout_of(model)).tolist() == model.weight.detach().reshape(-1).tolist()


def test_another_models_layout_is_refused_by_name() -> None:
    layout = layout_of(torch.nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"weight has shape \(3, 5\)"):
        read_weights(torch.nn.Linear(5, 3), layout)
    with pytest.raises(ValueError, match="bias is missing"):
        read_weights(torch.nn.Linear(4, 3, bias=False), layout)


@given(hnp.arrays(np.int32, st.integers(0, 30), elements=st.integers(-(1 << 24), 1 << 24)))
def test_the_grid_survives_float32_within_one(units: npt.NDArray[np.int32]) -> None:
    assert np.array_equal(to_units(from_units(units)), units)


@given(hnp.arrays(np.float32, st.integers(0, 30), elements=st.floats(-63, 63, width=32)))
def test_rounding_is_to_the_nearest_unit(values: npt.NDArray[np.float32]) -> None:
    assert (np.abs(to_units(values) * UNIT - values.astype(np.float64)) <= UNIT / 2).all()


def test_values_beyond_the_grid_are_clipped() -> None:
    far = np.array([1e3, -1e3, 3e38, -3e38], np.float32)
    assert to_units(far).tolist() == [MAX_UNITS, -MAX_UNITS, MAX_UNITS, -MAX_UNITS]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="1 of 2 values are not finite"):
        to_units(np.array([0.5, bad], np.float32))


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=20))
def test_the_norm_is_exact(values: list[int]) -> None:
    assert norm_squared(np.array(values, np.int32)) == sum(value * value for value in values)
