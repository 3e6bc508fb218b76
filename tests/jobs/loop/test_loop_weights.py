"""The models people have, as one vector: tied, frozen, compiled, in half precision, with several optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.compression.weights import Floats
from p2pnode.integrations.join import HookedLoop, LoopExtras
from p2pnode.integrations.ranks import Ranks
from p2pnode.jobs.loop.handover import WeightsChange
from p2pnode.jobs.loop.weights import ModelWeights, shared_tensors, unwrapped
from p2pnode.wire.errors import UsageError


def hooked(model: Any, optimizer: Any, **given: Any) -> HookedLoop:
    return HookedLoop(model, optimizer, LoopExtras(**{"task": "t", **given}), Ranks())


def weights_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> ModelWeights:
    return ModelWeights(model, [optimizer], shared_tensors(model, [optimizer]))


def sgd(model: nn.Module, rate: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD([part for part in model.parameters() if part.requires_grad], rate)


def merge(loop: HookedLoop, change: float | Floats) -> None:
    """What a node does after a round: the next step adds the change."""
    size = loop.weights.layout.size
    vector = change if isinstance(change, np.ndarray) else np.full(size, change, np.float32)
    loop.handover.hand_back(WeightsChange(vector))


def step(model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor | None = None) -> None:
    model(torch.ones(4, 3) if x is None else x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Tied(nn.Module):
    """Input and output weights are one parameter, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.embed(ids))}


def test_tied_weights_are_there_once_and_stay_tied() -> None:
    model = Tied()
    optimizer = sgd(model)
    weights = weights_of(model, optimizer)
    assert weights.layout.parameters == (("embed.weight", (5, 3)),)
    weights.add(np.ones(15, np.float32))
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.head.weight.detach().reshape(-1), torch.from_numpy(weights.read()))


def test_frozen_parts_are_left_out_and_never_touched() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    weights = weights_of(model, sgd(model))
    assert [name for name, _ in weights.layout.parameters] == ["1.weight", "1.bias"]
    weights.replace(np.zeros(8, np.float32), heal=False)
    assert torch.equal(model[0].weight, before)
    assert not model[1].weight.detach().any()


def test_half_precision_parameters_take_changes_and_are_read_as_floats() -> None:
    model = nn.Linear(4, 4).to(torch.bfloat16)
    weights = weights_of(model, sgd(model))
    before = weights.read()
    weights.add(np.full(20, 0.5, np.float32))
    assert model.weight.dtype == torch.bfloat16
    assert np.allclose(weights.read(), before + 0.5, atol=0.01)


def test_read_and_replace_are_inverse_bit_by_bit() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(3, 2))
    weights = weights_of(model, sgd(model))
    vector = np.random.default_rng(0).normal(size=weights.layout.size).astype(np.float32)
    weights.replace(vector, heal=False)
    assert (weights.read() == vector).all()


def test_accumulated_gradients_are_one_step() -> None:
    model = nn.Linear(3, 1)
    optimizer = sgd(model)
    loop = hooked(model, optimizer)
    for number in range(8):
        model(torch.ones(4, 3)).mean().backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert loop.handover.total == 2
    loop.close()


def test_a_step_that_the_scaler_skips_counts_none_and_training_in_mixed_precision_is_unchanged() -> None:
    """torch's own GradScaler: the weights are those of the same loop without p2pnode, and only real steps count."""
    results = []
    for joined in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = sgd(model)
        loop = hooked(model, optimizer) if joined else None
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number in range(6):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.ones(4, 3)).square().mean()
            scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        results.append(model.weight.detach().clone())
        if loop is not None:
            assert loop.handover.total == 5
            loop.close()
    assert torch.equal(*results)


def test_a_fused_optimizer_that_skips_inside_counts_none_either() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.1, fused=True)
    loop = hooked(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(4):
        loss = model(torch.ones(4, 3)).square().mean() * (float("inf") if number == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert loop.handover.total == 3
    loop.close()


def test_several_optimizers_have_one_round_counter() -> None:
    """As of a generator and a discriminator, one of which steps twice as often."""
    model: Any = nn.ModuleDict({"g": nn.Linear(3, 3), "d": nn.Linear(3, 1)})
    first, second = sgd(model["g"]), sgd(model["d"])
    loop = hooked(model, [first, second])
    assert loop.weights.layout.size == 16
    for _ in range(5):
        for optimizer in (first, second, second):
            model["d"](model["g"](torch.ones(2, 3))).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert loop.handover.total == 10
    merge(loop, 1.0)
    before = model["g"].weight.detach().clone()
    second.step()
    assert torch.equal(model["g"].weight.detach(), before + 1.0)
    loop.close()


def test_parameter_groups_keep_their_rates_and_the_optimizer_its_state() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters(), "lr": 0.001}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    loop = hooked(model, optimizer)
    step(model, optimizer)
    moments = {name: value.clone() for name, value in first_state(optimizer).items()}
    merge(loop, 0.25)
    before = model[0].weight.detach().clone()
    assert loop.handover.settle()
    assert torch.equal(model[0].weight.detach(), before + 0.25)
    keys = set(optimizer.state_dict())
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.001]
    assert keys == {"state", "param_groups"}
    assert all(torch.equal(value, moments[name]) for name, value in first_state(optimizer).items())
    loop.close()


def first_state(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return next(iter(optimizer.state.values()))


def test_a_merge_moves_training_by_exactly_the_change() -> None:
    """A loop with merges is the loop without, plus the changes: linear loss, so that steps do not depend on weights."""
    results = []
    for changes in ((), (0.25, -0.5, 1.0)):
        torch.manual_seed(0)
        model = nn.Linear(3, 1, bias=False)
        optimizer = sgd(model)
        loop = hooked(model, optimizer)
        for number in range(6):
            if number < len(changes):
                merge(loop, changes[number])
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(model.weight.detach().clone())
        loop.close()
    assert torch.allclose(results[1], results[0] + 0.75)


def test_a_compiled_model_is_not_compiled_again_after_a_merge() -> None:
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    model = torch.compile(inner, backend=backend)
    optimizer = sgd(inner)
    loop = hooked(model, optimizer)
    assert next(name for name, _ in loop.weights.layout.parameters) == "0.weight"  # without torch.compile's prefix
    step(model, optimizer)
    before = len(compiled)
    assert before > 0
    for _ in range(3):
        merge(loop, 0.5)
        step(model, optimizer)
        step(model, optimizer)
    assert len(compiled) == before
    shown = model(torch.ones(1, 3))
    assert torch.allclose(shown, inner(torch.ones(1, 3)))  # the compiled model computes with the merged weights
    loop.close()


def test_a_model_moved_or_cast_before_joining_is_read_where_it_is() -> None:
    model = nn.Linear(3, 1)
    optimizer = sgd(model)
    model.double()  # keeps the parameters, with other memory
    weights = weights_of(model, optimizer)
    weights.replace(np.arange(4, dtype=np.float32), heal=False)
    assert model.weight.dtype == torch.float64
    assert model.weight.detach().tolist() == [[0.0, 1.0, 2.0]]


def test_values_that_are_not_finite_leave_the_optimizer_too() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    loop = hooked(model, optimizer)
    good = loop.weights.read()
    (model(torch.ones(1, 3)).sum() * float("nan")).backward()
    optimizer.step()
    optimizer.zero_grad()
    assert not np.isfinite(loop.weights.read()).any()
    loop.handover.hand_back(WeightsChange(good, replaces=True, heals=True))
    loop.handover.settle()
    for _ in range(3):
        step(model, optimizer)
    assert np.isfinite(loop.weights.read()).all()
    loop.close()


# ---- bad input ----


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match="holds none of the model's parameters; make it from this model's"):
        hooked(nn.Linear(3, 1), sgd(nn.Linear(3, 1)))


def test_a_model_joins_once() -> None:
    model = nn.Linear(3, 1)
    loop = hooked(model, sgd(model))
    with pytest.raises(UsageError, match=r"takes part in a run already; leave\(\) it first"):
        hooked(model, sgd(model))
    loop.close()
    hooked(model, sgd(model)).close()


def test_a_replaced_parameter_is_noticed() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = sgd(model)
    loop = hooked(model, optimizer)
    loop.handover.end_round_after(1)
    model[1] = nn.Linear(3, 1)
    with pytest.raises(UsageError, match=r"parameter 1.weight was replaced after p2pnode.join; .* leave\(\) and join"):
        step(model, optimizer)
    loop.close()


@pytest.mark.parametrize(
    ("model", "optimizer", "said"),
    [
        ("model", None, "needs a torch model, not str"),
        (nn.Linear(1, 1), "adam", "needs a torch optimizer, or a list of them, not str"),
        (nn.Linear(1, 1), [], "needs an optimizer, or a list of them"),
        (nn.Linear(1, 1).requires_grad_(False), None, "no trainable parameters; unfreeze some"),
    ],
)
def test_what_is_no_model_or_optimizer_is_refused(model: Any, optimizer: Any, said: str) -> None:
    given = torch.optim.SGD([nn.Parameter(torch.ones(1))]) if optimizer is None else optimizer
    with pytest.raises(UsageError, match=said):
        hooked(model, given)


def test_wrappers_are_taken_off() -> None:
    inner = nn.Linear(2, 2)
    assert unwrapped(nn.DataParallel(inner)) is inner
    assert unwrapped(torch.compile(inner)) is inner  # type: ignore[arg-type]
