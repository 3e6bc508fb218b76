"""A model divided among the nodes of a simulated swarm: it learns, whoever dies, is slow, or lies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import p2pnode
from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.pipeline.job import PipelineJob
from p2pnode.jobs.pipeline.messages import Backward, TensorIs
from p2pnode.jobs.pipeline.server import SpanServer
from p2pnode.jobs.pipeline.spans import BlockSpan
from p2pnode.jobs.pipeline.tensors import encode_tensor
from p2pnode.network.sim import Fault, Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.errors import UsageError
from tests.known import known

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
MODEL = {"task": "gpt", "width": 16, "layers": 4, "heads": 2, "context": 16}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("texts") / "words.txt"
    path.write_text(" ".join(rng.choice(WORDS) for _ in range(8000)))
    return path


def one_driver(options: Options, index: int, starts: int) -> Options:
    """Node 0 drives and serves nothing, the others serve only."""
    job = options.jobs[0]
    given = {**job.given, "role": "serve" if index else "drive"}
    if index:
        del given["data"]
    return replace(options, jobs=(replace(job, given=given),))


def scenario(text: Path, servers: int, faults: tuple[Fault, ...] = (), **given: object) -> Scenario:
    job = JobOptions("big", "pipeline", {**MODEL, "data": str(text), "span": 2, "in_flight": 6, **given})
    training = SimTraining(replace(SIMULATED, task=None), rounds=10**6, mean_steps=2.0, jobs=(job,))
    links = Links(latency=0.01, rate=12.5e6)
    return Scenario(
        servers + 1,
        seed=4,
        seconds=1000.0,
        links=links,
        faults=faults,
        spread=2.0,
        sample_every=0.0,
        training=training,
        adjust=one_driver,
    )


Look = Callable[[Simulation], None]


def jobs_of(simulation: Simulation) -> dict[int, PipelineJob]:
    found = {index: process.node.jobs.jobs.get("big") for index, process in simulation.processes.items()}
    return {index: job for index, job in found.items() if isinstance(job, PipelineJob)}


def simulated(plan: Scenario, *pieces: tuple[float, Look]) -> dict[int, PipelineJob]:
    """The jobs after some pieces of virtual time, after each of which somebody looks or meddles."""

    async def main() -> dict[int, PipelineJob]:
        simulation = Simulation(plan)
        await simulation.start()
        for seconds, look in pieces:
            await simulation.learn(known(simulation.watch), seconds)
            look(simulation)
        jobs = jobs_of(simulation)
        result = await simulation.finish()
        assert result.left_over == ()
        return jobs

    with one_thread():
        return run_sim(main())


def nothing(simulation: Simulation) -> None:
    pass


def server_of(job: PipelineJob) -> SpanServer:
    return known(job.server)


def done(job: PipelineJob) -> int:
    return known(job.driver).counts.done


def test_a_model_that_nobody_holds_whole_learns_and_servers_of_a_block_agree(text: Path) -> None:
    first: list[float] = []
    jobs = simulated(
        scenario(text, 4),
        (12.0, lambda simulation: first.append(known(known(jobs_of(simulation)[0].driver).counts.loss))),
        (30.0, nothing),
    )
    counts = known(jobs[0].driver).counts
    assert known(counts.loss) < first[0] - 0.5, "it learns"
    assert counts.lost == counts.late == counts.liars == 0
    spans = [server_of(jobs[index]).span for index in range(1, 5)]
    assert all(span.length == 2 for span in spans) and jobs[0].server is None
    assert {block for span in spans for block in range(span.first, span.stop)} == set(range(4))
    by_block: dict[int, list[np.ndarray]] = {}  # type: ignore[type-arg]
    for job in jobs.values():
        for number, part in job.parts.open.items():
            by_block.setdefault(number, []).append(part.shared.policy.weights())
    for number, weights in by_block.items():
        assert all(np.abs(one - weights[0]).max() < 0.2 for one in weights), f"block {number}: servers drift apart"
    blocks, servers = jobs[0].status().tables
    assert [row[0] for row in blocks.rows] == [0, 1, 2, 3]
    assert len(servers.rows) == 4 and all(row[6] == "" for row in servers.rows)


def test_servers_that_die_are_replaced_by_others_and_nothing_is_lost(text: Path) -> None:
    seen: list[int] = []
    kills = tuple(Fault(12.0 + 3.1 * number, "crash", (1 + number % 4,), seconds=2.0) for number in range(6))
    jobs = simulated(
        scenario(text, 5, kills),
        (12.0, lambda simulation: seen.append(done(jobs_of(simulation)[0]))),
        (22.0, lambda simulation: seen.append(done(jobs_of(simulation)[0]))),
        (12.0, nothing),
    )
    counts = known(jobs[0].driver).counts
    assert seen[0] < seen[1] < counts.done, "it goes on"
    assert counts.lost == 0
    assert counts.repeated > 0, "some calls were under way when a server died"


def test_without_a_server_for_a_block_it_waits_says_so_and_goes_on_when_one_comes(text: Path) -> None:
    seen: list[int] = []

    def look(simulation: Simulation) -> None:
        job = jobs_of(simulation)[0]
        seen.append(done(job))
        if len(seen) == 3:
            events = simulation.processes[0].node.status().events
            assert any("nobody serves block" in event.text for event in events)
            assert known(job.driver).waiting_for == [0, 1, 2, 3]

    gone = Fault(15.0, "crash", (1, 2), seconds=40.0)
    jobs = simulated(scenario(text, 2, (gone,)), (14.0, look), (16.0, look), (20.0, look), (40.0, look))
    assert seen[0] > 0
    assert seen[2] - seen[1] == 0 and seen[3] > seen[2]
    assert known(jobs[0].driver).counts.lost == 0


def test_a_server_that_becomes_slow_gets_less_and_holds_up_nobody(text: Path) -> None:
    before: list[int] = []

    def slow_down(simulation: Simulation) -> None:
        before.append(done(jobs_of(simulation)[0]))
        compute = known(simulation.processes[1].compute)
        compute._step_seconds *= 10

    jobs = simulated(scenario(text, 4), (20.0, slow_down), (20.0, nothing))
    done_after = done(jobs[0]) - before[0]
    assert done_after > 0.4 * before[0], "three of four servers still work, and each block has a fast one"
    assert known(jobs[0].driver).counts.lost == 0


def test_a_server_that_answers_nonsense_loses_its_calls(text: Path) -> None:
    def lie(simulation: Simulation) -> None:
        server, rng = server_of(jobs_of(simulation)[1]), np.random.default_rng(0)

        def nonsense(values: np.ndarray) -> bytes:  # type: ignore[type-arg]
            return encode_tensor(rng.standard_normal(values.shape).astype(np.float32) * 3, 8)

        server._written = nonsense  # type: ignore[method-assign]

    everybody = scenario(text, 4, span=4, check=0.2)
    jobs = simulated(everybody, (10.0, lie), (15.0, nothing))
    driver = known(jobs[0].driver)
    assert driver.counts.liars >= 1 and driver.counts.checked > 3
    liar = jobs[1].context.services.identity.peer_id
    assert liar not in driver.router.usable(), "it is left out"
    assert jobs[0].context.services.reputation.faults_of(liar) >= 1


def test_zeros_and_wrong_shapes_are_faults(text: Path) -> None:
    def lie(simulation: Simulation) -> None:
        jobs = jobs_of(simulation)
        server_of(jobs[1])._written = lambda values: encode_tensor(np.zeros_like(values), 8)  # type: ignore[method-assign]
        server_of(jobs[2])._written = lambda values: encode_tensor(values[:, :-1], 8)  # type: ignore[method-assign]

    jobs = simulated(scenario(text, 4, span=4, check=0.0), (8.0, lie), (10.0, nothing))
    reputation = jobs[0].context.services.reputation
    for index in (1, 2):
        assert reputation.faults_of(jobs[index].context.services.identity.peer_id) > 0
    assert known(jobs[0].driver).counts.lost == 0


def test_a_gradient_that_is_not_confirmed_is_taken_out_again(text: Path) -> None:
    """A driver asks for a gradient and never confirms it; the next step is as if it had not."""
    found: list[float] = []

    async def main() -> None:
        simulation = Simulation(scenario(text, 1, in_flight=1, span=4))
        await simulation.start()
        await simulation.learn(known(simulation.watch), 6.0)
        jobs = jobs_of(simulation)
        server = server_of(jobs[1])
        simulation.rest()
        await simulation.learn(known(simulation.watch), 15.0)
        held = jobs[1].parts.held
        before = {number: held.parts[number].gradient.clone() for number in held.parts}
        rng = np.random.default_rng(1)
        hidden, gradient = (rng.standard_normal((4, 16, 16)).astype(np.float32) for _ in range(2))
        request = Backward(0, 4, 4, 77, encode_tensor(hidden, 8), encode_tensor(gradient, 8))
        answer = server._work_backward(BlockSpan(0, 4), server.ticket("stranger", request), request, True)
        assert isinstance(answer, TensorIs)
        added = sum(float((held.parts[number].gradient - before[number]).norm()) for number in before)
        await simulation.learn(known(simulation.watch), 15.0)
        left = sum(float((held.parts[number].gradient - before[number]).norm()) for number in before)
        found.extend((added, left, server.taken_out))
        await simulation.finish()

    with one_thread():
        run_sim(main())
    added, left, taken_out = found
    assert added > 0.1 and left < 0.01 * added and taken_out >= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "digits"}, "task digits has no blocks"),
        ({"role": "server"}, "role=server is unknown; did you mean 'serve'"),
        ({"span": 65}, "span=65 must be a number from 0 to 64"),
        ({"bits": 5}, "bits=5 must be 4 or 8"),
        ({"role": "serve"}, "--serve-only is for joining a run"),
        ({"task": "gpt", "layers": 1}, "a pipeline needs 2 to 64 blocks"),
        ({"task": "gpt", "width": 1024, "context": 1024, "heads": 4}, "choose a smaller context or width"),
    ],
)
def test_wrong_options_are_one_line(text: Path, given: dict[str, object], message: str) -> None:
    job = {"kind": "pipeline", **MODEL, "data": str(text), **given}
    if given.get("task") == "digits":
        job = {"kind": "pipeline", "task": "digits"}
    with pytest.raises(UsageError) as raised:
        p2pnode.simulate(2, jobs={"big": job}, seconds=5)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
