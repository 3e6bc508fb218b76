"""A swarm that has converged trains a small share of the time, says so, and wakes up when somebody comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from operator import gt

import pytest

from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.training.slowdown import LEAST_DUTY
from p2pnode.wire.status import NodeStatus
from tests.known import train_job

LATE = 2
BACK = 2400.0  # seconds after which the third node is there again
LONG_RESTS = 8  # rests, each longer than the one before; the last are near the longest
TRAINING = SimTraining(replace(SIMULATED, full_speed=False), rounds=1_000_000, mean_steps=60.0)
# The third node crashes at once and comes back when the others have long converged.
PLAN = Scenario(
    peers=3, seed=4, seconds=1e6, sample_every=0.0, spread=1.0, training=TRAINING,
    faults=(Fault(5.0, "crash", (LATE,), seconds=BACK),),
)  # fmt: skip


@pytest.mark.slow
def test_a_converged_swarm_rests_and_a_newcomer_wakes_it() -> None:
    async def main() -> None:
        simulation = Simulation(PLAN)
        await simulation.start()
        loop = asyncio.get_running_loop()

        async def until(what: Callable[[NodeStatus], bool], limit: float) -> None:
            """Let virtual time pass until both nodes are so."""
            end = loop.time() + limit
            while not all(what(status_of(simulation, index)) for index in (0, 1)):
                assert loop.time() < end
                await simulation.go_on(5.0)

        await simulation.go_on(60.0)
        begun = [steps(simulation, index) for index in (0, 1)]
        await simulation.go_on(60.0)
        fast = [steps(simulation, index) - before for index, before in zip((0, 1), begun, strict=True)]
        rests: list[int] = [0, 0]
        while min(rests) < LONG_RESTS or any(map(gt, rests, resting(simulation))):  # better results may wake one
            assert loop.time() < BACK - 200
            rests, begun = resting(simulation), [steps(simulation, index) for index in (0, 1)]
            await simulation.go_on(120.0)
        accuracy = [status_of(simulation, index).jobs["main"].state.training.accuracy for index in (0, 1)]
        for index in (0, 1):
            slow = steps(simulation, index) - begun[index]
            assert 0 < slow / 2 <= 2.5 * LEAST_DUTY * fast[index], "at least a round, and a small share of the time"
            status = status_of(simulation, index)
            assert any(event.kind == "slowed" and "converged" in event.text for event in status.events)
            assert "converged" in status.jobs["main"].training.slowed
            assert status.unwell == ()
            assert (accuracy[index] or 0) > 0.95
        await until(lambda status: "rests" in status.jobs["main"].training.slowed, 60.0)  # not in the middle of a round
        assert loop.time() < BACK, "before the third node comes"
        await simulation.go_on(BACK + 6 - loop.time())
        await until(lambda status: not status.jobs["main"].training.slowed, 60.0)
        for index in (0, 1):
            events = status_of(simulation, index).events
            assert any(event.kind == "working" and "a member came" in event.text for event in events)
        simulation.rest()
        await simulation.finish()

    with one_thread():
        run_sim(main())


def status_of(simulation: Simulation, index: int) -> NodeStatus:
    return simulation.processes[index].node.status()


def resting(simulation: Simulation) -> list[int]:
    """How many rests in a row each of the two nodes has had."""
    return [train_job(simulation.processes[index].node).slowdown.rests for index in (0, 1)]


def steps(simulation: Simulation, index: int) -> int:
    return train_job(simulation.processes[index].node).trainer.steps_done
