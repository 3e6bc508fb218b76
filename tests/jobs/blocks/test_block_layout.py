"""Laws of cutting a model's vector: parts cover it once, and taking and putting are inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.weights import WeightLayout, layout_of
from p2pnode.jobs.blocks.layout import cut_model
from p2pnode.jobs.blocks.shared import block_lineage
from p2pnode.tasks.blocks import layer_parameters
from p2pnode.tasks.gpt import Gpt
from p2pnode.wire.errors import UsageError


@st.composite
def cut_layouts(draw: st.DrawFn) -> tuple[WeightLayout, list[list[str]], int]:
    """A layout whose parameters belong to layers or to the ends, in any order, and a number of levels."""
    levels, each = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    layers = levels * each
    owner = draw(st.permutations([*range(layers), layers, *draw(st.lists(st.integers(0, layers), max_size=8))]))
    sizes = draw(st.lists(st.integers(1, 5), min_size=len(owner), max_size=len(owner)))
    layout = WeightLayout(tuple((f"p{place}", (size,)) for place, size in enumerate(sizes)))
    names = [[f"p{place}" for place, one in enumerate(owner) if one == layer] for layer in range(layers)]
    return layout, names, levels


@given(cut_layouts())
def test_parts_have_every_weight_once(
    cut: tuple[WeightLayout, list[list[str]], int],
) -> None:
    layout, names, levels = cut
    parts = cut_model(layout, names, levels)
    assert len(parts.levels) == levels
    vector = np.arange(layout.size, dtype=np.float32)
    taken = [part.take(vector) for part in parts.all]
    assert sorted(np.concatenate(taken).tolist()) == vector.tolist()
    again = np.full_like(vector, -1)
    for part, values in zip(parts.all, taken, strict=True):
        assert part.size == len(values) == part.layout.size
        part.put(again, values)
    assert np.array_equal(again, vector)


def test_a_model_in_layers_computes_what_the_whole_model_does() -> None:
    task = Gpt(size="nano", layers=4)
    torch.manual_seed(0)
    model = task.model()
    batch = {"x": torch.randint(0, 256, (3, 33))}
    blocks = task.blocks(model)
    assert torch.allclose(blocks.losses(batch), task.losses(model, batch), atol=1e-6)
    parts = cut_model(layout_of(model), layer_parameters(model, blocks), 2)
    names = [name for name, _ in parts.ends.layout.parameters]
    assert all(not name.startswith("blocks.") for name in names)
    assert {name.split(".")[1] for name, _ in parts.levels[1].layout.parameters} == {"2", "3"}


def test_layers_that_cannot_be_divided_are_one_line() -> None:
    layout = WeightLayout((("a", (2,)), ("b", (2,)), ("c", (2,)), ("d", (1,))))
    with pytest.raises(UsageError, match="3 layers cannot be cut into 2 levels"):
        cut_model(layout, [["a"], ["b"], ["c"]], 2)


def test_each_block_of_each_model_has_a_lineage_of_its_own() -> None:
    found = {block_lineage(bytes([one]) * 32, name) for one in range(3) for name in ("ends", "level0", "level1")}
    assert len(found) == 9
