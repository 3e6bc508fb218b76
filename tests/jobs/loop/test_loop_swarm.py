"""Training loops in a simulated swarm: they learn together by every policy, join, crash, go on, and refuse nonsense."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.wire.errors import UsageError
from tests.jobs.loop.loop_swarm import Loop, LoopSwarm, accuracy, perceptron, run_loops


def two(policy: str | None = None, **settings: Any) -> LoopSwarm:
    """A founder that lacks one class and a joiner that lacks another, with other first weights."""
    loops = [Loop(0, (0, 1), **settings), Loop(1, (1, 2), **settings)]
    return LoopSwarm(loops, policy, settings={"steps": 20} if policy == "diloco" else {})


async def both(swarm: LoopSwarm) -> None:
    swarm.start(0)
    await swarm.until(lambda: swarm.loops[0].source.arrived.is_set())
    swarm.start(1)
    await swarm.until(lambda: swarm.loops[1].source.arrived.is_set())


@pytest.mark.parametrize("policy", ["deltaset", "gossip", "average", "diloco"])
def test_two_loops_learn_together_what_neither_could_alone(policy: str) -> None:
    swarm = two(policy)

    async def scenario(swarm: LoopSwarm) -> list[float]:
        await both(swarm)
        await swarm.until(lambda: min(map(seen, (0, 1))) > 0.8)
        return [seen(0), seen(1)]

    def seen(index: int) -> float:
        found = swarm.job(index).train_progress.evaluation if swarm.simulation.processes else None
        return 0.0 if found is None or found.accuracy is None else found.accuracy

    assert min(run_loops(swarm, scenario)) > 0.8  # without the others' class two thirds are the best there is
    assert [loop.error for loop in swarm.loops] == [None, None]


def test_a_joiner_takes_the_runs_weights_and_equal_heads_are_bit_equal_weights() -> None:
    async def scenario(swarm: LoopSwarm) -> None:
        swarm.start(0)
        await swarm.until(lambda: swarm.loops[0].steps > 100)
        before = swarm.job(0).policy.weights()
        swarm.start(1)
        await swarm.until(lambda: swarm.loops[1].source.arrived.is_set())
        mine = swarm.loops[1].hooked.weights.read()
        assert np.linalg.norm(mine - before) < 0.5 * np.linalg.norm(mine - perceptron_weights(1))
        await swarm.until(lambda: same_heads(swarm))
        assert (swarm.job(0).policy.weights() == swarm.job(1).policy.weights()).all()

    run_loops(two(), scenario)


def same_heads(swarm: LoopSwarm) -> bool:
    digests = [swarm.job(index).policy.can.entries.digest() for index in (0, 1)]  # type: ignore[union-attr]
    return digests[0] == digests[1] and swarm.job(1).train_progress.entries > 3


def perceptron_weights(seed: int) -> np.ndarray:
    return np.concatenate([part.detach().numpy().reshape(-1) for part in perceptron(seed).parameters()])


def test_a_joiner_trains_at_the_rate_of_the_lineage() -> None:
    """Its schedule goes on at the run's step, as do the optimizer's own rates."""
    from p2pnode.integrations.schedule import LineageLR

    swarm = two()
    joiner = swarm.loops[1]
    schedule = LineageLR(joiner.optimizer, lambda step: 1.0 if step < 300 else 0.1, lambda: joiner.source.steps)

    async def scenario(swarm: LoopSwarm) -> None:
        assert joiner.optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
        swarm.start(0)
        await swarm.until(lambda: swarm.loops[0].source.steps > 400)
        swarm.start(1)
        await swarm.until(joiner.source.arrived.is_set)
        schedule.step()
        assert joiner.source.steps > 400 > joiner.steps
        assert joiner.optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0] == pytest.approx(0.001)

    run_loops(swarm, scenario)


@pytest.mark.parametrize("checkpoint", ["none", "newer"])
def test_a_crashed_loop_goes_on_with_its_identity_weights_and_steps(checkpoint: str) -> None:
    """The script runs again, whatever weights it loads itself: what the node had is there, and what it published."""
    swarm = two()

    async def scenario(swarm: LoopSwarm) -> None:
        await both(swarm)
        await swarm.until(lambda: swarm.loops[1].steps > 600)
        await swarm.job(1).save()
        steps, weights = swarm.job(1).status().steps, swarm.job(1).policy.weights()
        peer, rounds = swarm.node(1).peer_id, swarm.job(1).train_progress.rounds
        swarm.simulation.crash(1)
        swarm.loops[1].source.closing.set()
        own = perceptron(7)
        if checkpoint == "newer":  # as if the script had trained alone since
            own.load_state_dict({name: part + 0.5 for name, part in swarm.loops[1].model.state_dict().items()})
        began = np.concatenate([part.detach().numpy().reshape(-1) for part in own.parameters()])
        swarm.loops[1] = again = Loop(7, (1, 2), model=own)
        swarm.start(1)
        await swarm.until(again.source.arrived.is_set)
        assert swarm.node(1).peer_id == peer
        assert swarm.job(1).status().steps >= steps
        assert swarm.job(1).train_progress.rounds >= rounds
        again.source.handover.settle()
        apart = np.linalg.norm(again.hooked.weights.read() - weights)
        assert apart < 0.5 * np.linalg.norm(began - weights)
        assert again.source.steps >= steps

    run_loops(swarm, scenario)


def test_weights_that_are_not_finite_stay_here_and_training_goes_on_from_the_last_good_ones() -> None:
    swarm = two()
    bad = swarm.loops[1]

    async def scenario(swarm: LoopSwarm) -> None:
        await both(swarm)
        await swarm.until(lambda: swarm.job(1).train_progress.rounds > 3)
        with torch.no_grad():
            bad.model[0].weight.fill_(float("nan"))  # type: ignore[operator, index, union-attr]
        await swarm.until(lambda: swarm.job(1).train_progress.diverged > 0)
        await swarm.until(lambda: bool(np.isfinite(bad.hooked.weights.read()).all()))
        rounds = swarm.job(1).train_progress.rounds
        await swarm.until(lambda: swarm.job(1).train_progress.rounds > rounds + 2)
        assert np.isfinite(bad.hooked.weights.read()).all()
        assert accuracy(bad.model) > 0.4
        assert np.isfinite(swarm.job(0).policy.weights()).all()

    run_loops(swarm, scenario)
    assert bad.error is None


def test_a_run_is_not_founded_with_weights_that_are_not_finite() -> None:
    model = perceptron()
    with torch.no_grad():
        model[0].weight[0] = float("nan")  # type: ignore[index]
    swarm = LoopSwarm([Loop(0, model=model)])

    async def scenario(swarm: LoopSwarm) -> BaseException | None:
        swarm.start(0)
        await swarm.until(lambda: swarm.problem(0) is not None)
        return swarm.problem(0)

    problem = run_loops(swarm, scenario)
    assert isinstance(problem, UsageError)
    assert "the model cannot be shared" in str(problem) and "load or initialise it anew" in str(problem)


def test_a_model_of_another_layout_gets_the_name_of_the_parameter_that_differs() -> None:
    swarm = LoopSwarm([Loop(0), Loop(1, model=perceptron(1, hidden=25))])

    async def scenario(swarm: LoopSwarm) -> str:
        swarm.start(0)
        await swarm.until(lambda: swarm.loops[0].source.arrived.is_set())
        swarm.start(1)
        await swarm.until(lambda: swarm.problem(1) is not None)
        return str(swarm.problem(1))

    said = run_loops(swarm, scenario)
    assert "parameter 0.weight is float32 [25, 2] here and float32 [24, 2] in the run" in said
    assert "found=True" in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"version": "2"}, "version='2' here, and the run has '1'"),
        ({"task": "other"}, "task='other' here, and the run has 'spirals'"),
        ({"buffers": "mean"}, "buffers='mean' contradicts the run"),
    ],
)
def test_other_names_and_versions_are_other_runs(settings: dict[str, Any], said: str) -> None:
    swarm = LoopSwarm([Loop(0), Loop(1, **settings)])

    async def scenario(swarm: LoopSwarm) -> BaseException | None:
        swarm.start(0)
        await swarm.until(lambda: swarm.loops[0].source.arrived.is_set())
        swarm.start(1)
        await swarm.until(lambda: swarm.problem(1) is not None)
        return swarm.problem(1)

    problem = run_loops(swarm, scenario)
    assert isinstance(problem, UsageError)
    assert said in str(problem)


def test_a_probe_lets_models_be_compared() -> None:
    probe = torch.randn(64, 2, generator=torch.Generator().manual_seed(5))
    swarm = two(probe=probe)

    async def scenario(swarm: LoopSwarm) -> float | None:
        await both(swarm)
        await swarm.until(lambda: any(peer.similarity is not None for peer in swarm.node(0).status().peers))
        return swarm.node(0).status().peers[0].similarity

    similarity = run_loops(swarm, scenario)
    assert similarity is not None and 0.0 < similarity <= 1.0


class Normed(nn.Module):
    """With BatchNorm, dropout, and a buffer of its own."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 3))
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.scale * x)


@pytest.mark.parametrize("buffers", ["own", "mean"])
def test_an_exported_batchnorm_model_is_as_good_as_the_nodes_own_reading(tmp_path, buffers: str) -> None:  # type: ignore[no-untyped-def]
    """Within half a point: the statistics fit the merged weights, in the file as in the node's evaluation."""
    import p2pnode
    from p2pnode.wire.control import ControlRequest

    torch.manual_seed(0)
    first, second = Normed(), Normed()
    loops = [Loop(0, (0, 1), model=first, buffers=buffers), Loop(1, (1, 2), model=second, buffers=buffers)]
    swarm = LoopSwarm(loops)

    async def scenario(swarm: LoopSwarm) -> None:
        await both(swarm)

        def learned() -> bool:
            found = swarm.job(0).train_progress.evaluation
            return found is not None and (found.accuracy or 0) > 0.8

        await swarm.until(learned)
        file = tmp_path / "model.safetensors"
        await swarm.node(0).execute(ControlRequest("export", file=str(file)))
        replica, job = loops[0].source.replica, swarm.job(0)
        reading = replica.evaluate(job.policy.readout(), accuracy).accuracy
        fresh = Normed()
        fresh.load_state_dict(p2pnode.load(file))
        fresh.eval()
        assert reading > 0.75
        assert accuracy(fresh) == pytest.approx(reading, abs=0.005)

    run_loops(swarm, scenario)


def test_a_node_that_is_paused_shares_nothing_and_the_loop_goes_on() -> None:
    from p2pnode.wire.control import ControlRequest

    swarm = two()

    async def scenario(swarm: LoopSwarm) -> None:
        await both(swarm)
        await swarm.until(lambda: swarm.job(1).train_progress.rounds > 3)
        await swarm.node(1).execute(ControlRequest("pause"))
        await asyncio.sleep(1)
        rounds, steps = swarm.job(1).train_progress.rounds, swarm.loops[1].steps
        await swarm.until(lambda: swarm.loops[1].steps > steps + 200)
        assert swarm.job(1).train_progress.rounds == rounds
        await swarm.node(1).execute(ControlRequest("resume"))
        await swarm.until(lambda: swarm.job(1).train_progress.rounds > rounds + 1)

    run_loops(swarm, scenario)


@pytest.mark.slow
def test_many_loops_form_circles_and_a_newcomer_enters_one() -> None:
    """As nodes that train by themselves do: traffic stays that of a circle, and weights are bit-equal within each."""
    swarm = LoopSwarm([Loop(index, (index % 3, (index + 1) % 3), evaluate=None) for index in range(14)])
    last = len(swarm.loops) - 1

    def circles() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index in range(len(swarm.simulation.processes)):
            if swarm.loops[index].source.arrived.is_set():
                found.setdefault(swarm.job(index).members.circle.name, []).append(index)
        return found

    def settled() -> bool:
        sizes = [len(members) for members in circles().values()]
        return len(sizes) > 1 and min(sizes) >= 4 and max(sizes) < 12

    async def scenario(swarm: LoopSwarm) -> None:
        swarm.start(0)
        await swarm.until(swarm.loops[0].source.arrived.is_set)
        for index in range(1, last):
            swarm.start(index)
        await swarm.until(settled)
        swarm.start(last)
        await swarm.until(lambda: swarm.loops[last].source.arrived.is_set() and settled())
        one, other = circles()[swarm.job(last).members.circle.name][-2:]
        await swarm.until(lambda: swarm.job(one).heads() == swarm.job(other).heads())
        assert (swarm.job(one).policy.weights() == swarm.job(other).policy.weights()).all()

    run_loops(swarm, scenario)
    assert [loop.error for loop in swarm.loops] == [None] * len(swarm.loops)
