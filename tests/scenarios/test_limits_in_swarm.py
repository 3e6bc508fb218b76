"""A node that rests holds up nobody, and catches up afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from p2pnode.simulate import Simulation
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.status import JobStatus
from tests.known import known
from tests.scenarios.test_training import PLAN, TRAINING, check_one_set, run_then_rest

SMALL = replace(PLAN, peers=3, training=replace(TRAINING, rounds=10))
RESTS = 1


def learning(simulation: Simulation, index: int) -> JobStatus:
    found = simulation.processes[index].node.status().jobs.get("main")
    assert found is not None
    return found


def test_who_rests_does_nothing_and_answers_and_the_others_go_on() -> None:
    async def rest(simulation: Simulation) -> None:
        await asyncio.sleep(8.0)
        node = simulation.processes[RESTS].node
        await node.execute(ControlRequest("pause"))
        await asyncio.sleep(3.0)  # what was under way ends
        before, others = learning(simulation, RESTS), learning(simulation, 0)
        served = node.status().traffic.calls_served
        await asyncio.sleep(8.0)
        after, gone_on = learning(simulation, RESTS), learning(simulation, 0)
        assert (after.steps, after.state.training.round) == (before.steps, before.state.training.round)
        assert after.training.exchanges == before.training.exchanges
        assert known(gone_on.state.training.round) > known(others.state.training.round) + 1
        assert node.status().traffic.calls_served > served
        assert node.status().condition == "connected"
        for index in (0, 2):
            rows = simulation.processes[index].node.status().peers
            assert all(row.present for row in rows), "it is there for the others"
        await node.execute(ControlRequest("resume"))

    result, found = run_then_rest(SMALL, rest)
    check_one_set(found, 3)
    assert result.finished and result.left_over == ()
