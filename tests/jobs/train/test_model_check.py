"""Members whose models have one layout and compute different things do not learn together, and report why."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.binding import check_model, make_plan
from p2pnode.jobs.train.model_check import difference, judge
from p2pnode.jobs.train.plan import ModelSketch, read_plan, write_plan
from p2pnode.similarity.sketch import sketch
from p2pnode.tasks.task import Samples, Task
from p2pnode.training.function_sketch import FIXED_GROUPS, FunctionSketch
from p2pnode.training.host import ModelHost
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import PeerId

A, B, C = (PeerId(letter) for letter in "abc")


class Blobs(Task):
    """Four classes of points. Its attributes make models that differ, all of one layout."""

    activation = "relu"
    base = 0  # seed of a frozen layer
    norm = False
    shift = 0.0  # a buffer that forward adds
    smoothing = 0.0
    turned = 0  # how far the labels are turned
    masked = False  # the loss hides inputs at random
    layers = 1

    def model(self) -> nn.Module:
        return Net(self)

    def data(self) -> Samples:
        x = torch.randn(200, 6, generator=torch.Generator().manual_seed(3))
        return {"x": x, "y": (x[:, :4].argmax(1) + self.turned) % 4}

    def test_data(self) -> Samples:
        return self.data()

    def losses(self, model: nn.Module, batch: Samples) -> Tensor:
        x = batch["x"] * (torch.rand(batch["x"].shape) > 0.3) if self.masked else batch["x"]
        return nn.functional.cross_entropy(model(x), batch["y"], reduction="none", label_smoothing=self.smoothing)


class Net(nn.Module):
    shift: Tensor

    def __init__(self, task: Blobs) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(task.base)
        self.frozen = nn.ModuleList([nn.Linear(6, 6) for _ in range(task.layers)])
        for part in self.frozen.parameters():
            part.data = torch.randn(part.shape, generator=generator) / 2
            part.requires_grad = False
        self.register_buffer("shift", torch.full((6,), task.shift))
        self.norm = nn.BatchNorm1d(6, affine=False) if task.norm else nn.Identity()
        self.hidden = nn.Linear(6, 32)
        self.activation = {"relu": nn.ReLU, "tanh": nn.Tanh}[task.activation]()
        self.out = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.frozen:
            x = layer(x)
        found: Tensor = self.out(self.activation(self.hidden(self.norm(x + self.shift))))
        return found


def host(seed: int = 1, **options: Any) -> ModelHost:
    return ModelHost(Blobs(**options), seed=seed)


def check(founder: ModelHost, joiner: ModelHost) -> bool:
    """Through the manifest's bytes, as a joiner gets it."""
    plan = write_plan(make_plan(founder, TrainOptions(), 1))
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(plan))
    return check_model(read_plan(received), joiner)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activation": "tanh"}, "outputs on the run's probe are others: an activation"),
        ({"base": 7}, "frozen parameter 'frozen.0.weight' has other values than the founder's"),
        ({"shift": 0.5}, "buffer 'shift' has other values"),
        ({"norm": True}, "has 6 frozen parameters and buffers, the founder's has 3"),
        ({"smoothing": 0.2}, "its losses are not: loss"),
        ({"turned": 1}, "its labels are not; number the classes"),
    ],
)
def test_a_joiner_with_another_model_learns_what_differs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match="this node's model of 'blobs' is not the run's") as raised:
        check(host(), host(**options))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("options", [{}, {"norm": True}, {"layers": 40}])
def test_the_same_model_is_confirmed_whatever_seed_it_was_built_from(options: dict[str, Any]) -> None:
    """Another version of torch makes another genesis of the same seed; the function is the same."""
    assert check(host(1, **options), host(2, **options))


def test_a_model_that_has_been_trained_is_still_the_same() -> None:
    used = host(norm=True)
    used.model.train()
    with torch.no_grad():
        for _ in range(20):
            used.model(used.data.first(100)["x"] + 3)  # moves the statistics of BatchNorm
    assert check(host(norm=True), used)


def test_rounding_is_no_difference() -> None:
    rounded = host()
    for part in rounded.model.frozen.parameters():  # type: ignore[union-attr]
        part.data = part.data.bfloat16().float()
    assert check(host(), rounded)


def test_many_frozen_parameters_are_compared_in_groups() -> None:
    layers = FIXED_GROUPS
    other = host(layers=layers)
    other.model.frozen[layers - 1].bias.data += 1  # type: ignore[index, operator, union-attr]
    with pytest.raises(UsageError, match=rf"frozen.{layers - 1}.bias' or one of the 1 after it has other values"):
        check(host(layers=layers), other)


def test_what_is_random_is_not_compared() -> None:
    assert not check(host(masked=True), host(masked=True))
    with pytest.raises(UsageError, match="frozen parameter"):
        check(host(masked=True), host(masked=True, base=7))


def test_other_inputs_of_the_probe_are_not_compared() -> None:
    other = host(activation="tanh")
    other.task.probe = lambda: {"x": torch.ones(8, 6), "y": torch.zeros(8).long()}  # type: ignore[method-assign]
    assert not check(host(), other)


def test_a_plan_without_a_sketch_confirms_nothing() -> None:
    plan = make_plan(host(base=0, layers=0), TrainOptions(), 1)
    empty = msgspec.structs.replace(plan, model=ModelSketch(fixed_count=1))
    assert not check_model(empty, host(layers=0, activation="tanh"))


@pytest.mark.parametrize("bad", [(float("nan"),) * 34, (1.0,), (0.0, 0.0), (1e300,) * 34])
def test_a_hostile_sketch_gives_a_line(bad: tuple[float, ...]) -> None:
    plan = make_plan(host(), TrainOptions(), 1)
    hostile = msgspec.structs.replace(plan.model, fixed=(bad,) * 3, outputs=bad, losses=bad)
    with pytest.raises(UsageError, match="is not the run's"):
        check_model(msgspec.structs.replace(plan, model=hostile), host())


def random_results(seed: int) -> FunctionSketch:
    rng = np.random.default_rng(seed)
    return FunctionSketch(sketch(rng.normal(size=99)), sketch(rng.normal(size=9)))


class TestPartners:
    """What follows when partners have other results at the same position."""

    ours, others, third = map(random_results, range(3))

    def test_the_difference_is_named(self) -> None:
        assert difference(self.ours, copy.copy(self.ours)) == ""
        assert "activation" in difference(self.others, self.ours)
        assert "loss()" in difference(self.ours._replace(losses=self.others.losses), self.ours)
        assert difference(FunctionSketch(), self.ours) == "", "nothing to compare"

    def test_one_partner_alone_stops_nobody(self) -> None:
        assert judge({A: self.others}, founder=C, confirmed=False) == "unknown"

    def test_two_that_agree_with_each_other_do(self) -> None:
        assert judge({A: self.others, B: self.others}, founder=C, confirmed=False) == "different"
        assert judge({A: self.others, B: self.third}, founder=C, confirmed=False) == "unknown"

    def test_the_founder_does(self) -> None:
        assert judge({C: self.others}, founder=C, confirmed=False) == "different"

    def test_only_the_founder_stops_a_node_that_agrees_with_the_manifest(self) -> None:
        assert judge({A: self.others, B: self.others}, founder=C, confirmed=True) == "unknown"
        assert judge({C: self.others}, founder=C, confirmed=True) == "different"
