"""`export --settle` in a swarm: members lower their learning rate together, and the settled weights are written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pnode.compression.weights import Floats
from p2pnode.merging.settling import FEWEST
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.storage.state_file import load_with_facts
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import UsageError
from tests.known import train_job

TRAINING = SimTraining(replace(SIMULATED, task_options={"hidden": 16}), rounds=1_000_000, mean_steps=10.0)
PLAN = Scenario(peers=3, seed=4, seconds=1e6, sample_every=0.0, spread=1.0, training=TRAINING)


def test_members_settle_together_and_the_result_is_exported(tmp_path: Path) -> None:
    request = ControlRequest("export", file=str(tmp_path / "settled.safetensors"), settle=True)
    lowest = [1.0] * 3
    kept: list[Floats] = []

    async def main() -> None:
        simulation = Simulation(PLAN)
        await simulation.start()
        await simulation.go_on(60.0)
        jobs = [train_job(process.node) for process in simulation.processes.values()]
        full = jobs[0].policy.pace(3).rate
        end = asyncio.get_running_loop().time() + 600.0
        while not (answer := await jobs[0].execute(request)).said:
            assert asyncio.get_running_loop().time() < end and f"{FEWEST} steps" in answer.pending
            assert not (tmp_path / "settled.safetensors").exists()
            await simulation.go_on(1.0)
            lowest[:] = [min(low, job.policy.pace(3).rate / full) for low, job in zip(lowest, jobs, strict=True)]
        assert "tensors" in answer.said and "accuracy 9" in answer.said
        assert any(event.kind == "settling" for event in jobs[0]._services.events.latest(200))
        assert max(lowest) < 0.2, "everybody's rate fell"
        assert jobs[0].policy.pace(3).rate == full, "and is whole again"
        pending = (await jobs[0].execute(request)).pending
        assert "not long ago" in pending, "settling again at once would slow learning down"
        kept.append(jobs[0].policy.weights())
        await simulation.finish()

    with one_thread():
        run_sim(main())
    state, facts = load_with_facts(tmp_path / "settled.safetensors")
    assert facts["weights"] == "settled"
    written = np.concatenate([np.asarray(tensor).ravel() for tensor in state.values()])
    assert written.shape == kept[0].shape


def test_where_members_cannot_settle_it_says_so(tmp_path: Path) -> None:
    options = replace(SIMULATED, policy="average")
    plan = replace(PLAN, training=replace(TRAINING, options=options))

    async def main() -> None:
        simulation = Simulation(plan)
        await simulation.start()
        await simulation.go_on(10.0)
        job = train_job(simulation.processes[0].node)
        with pytest.raises(UsageError, match="only a run with the policy deltaset"):
            await job.execute(ControlRequest("export", file=str(tmp_path / "x.pt"), settle=True))
        await simulation.finish()

    with one_thread():
        run_sim(main())
