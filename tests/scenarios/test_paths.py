"""Paths in a simulated swarm: blocks stay equal, a path outlives its workers, texts and experts are read out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import p2pnode
from p2pnode.config.options import JobOptions
from p2pnode.jobs.paths.job import PathsJob
from p2pnode.merging.messages import Exchange
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.storage.state_file import load_with_facts
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused, UsageError
from p2pnode.wire.ids import PeerId
from tests.known import known

KINDS = {
    "py": "def f{0}(x):\n    return x + {0}\n",
    "c": "int f{0}(void) {{ return {0}; }}\n",
    "prose": "The {0} old men walked home slowly. ",
    "html": "<p class='n{0}'>{0}</p>\n",
}
SMALL: dict[str, int | str] = {"width": 16, "layers": 2, "heads": 2, "context": 24, "test_windows": 32, "warmup": 5}


def write_texts(folder: Path, kinds: Sequence[str] = tuple(KINDS)) -> Path:
    """A few files of each kind."""
    for kind in kinds:
        draw = random.Random(kind)
        for number in range(2):
            text = "".join(KINDS[kind].format(draw.randrange(1000)) for _ in range(160))
            (folder / f"{kind}{number}.txt").write_text(text)
    return folder


def scenario(folder: Path, peers: int, seed: int = 1, **given: object) -> Scenario:
    options = replace(SIMULATED, task="gpt", data=folder, task_options=SMALL)
    job = JobOptions("text", "paths", {"paths": "2x2", **given})
    training = SimTraining(options, rounds=10**6, mean_steps=2.0, jobs=(job,))
    return Scenario(peers, seed=seed, seconds=2000.0, sample_every=0.0, training=training)


def replace_path(request: ControlRequest, path: str) -> ControlRequest:
    return msgspec.structs.replace(request, path=path)


def jobs_of(simulation: Simulation) -> dict[int, PathsJob]:
    found = {index: process.node.jobs.jobs.get("text") for index, process in sorted(simulation.processes.items())}
    return {index: job for index, job in found.items() if isinstance(job, PathsJob)}


def check_foreign_blocks(job: PathsJob) -> None:
    """A block that is not here is refused; entries of another block's lineage cost the sender reputation."""
    peer = PeerId("somebody")
    with pytest.raises(PeerRefused, match="that block is not here"):
        job.held._answer(peer, Exchange(b"", False, "level7.path9"))
    ends, level = job.held.open["ends"], next(block for name, block in job.held.open.items() if name != "ends")
    before = level.policy.weights()
    body = ends.policy.answer(peer, level.policy.ask(peer))
    with pytest.raises(PeerMisbehaved, match="exchange"):
        job.held._answer(peer, Exchange(body, True, level.block))
    assert (level.policy.weights() == before).all()


def check_blocks_equal(jobs: Sequence[PathsJob]) -> int:
    """All who train a block have the same entries and bit-equal weights; returns how many blocks are shared."""
    holders: dict[str, list[PathsJob]] = {}
    for job in jobs:
        for path in job.works:
            for block in job.grid.blocks(path):
                holders.setdefault(block, []).append(job)
    for block, sharing in holders.items():
        policies = [job.held.open[block].policy for job in sharing]
        assert len({known(policy.can.entries).digest() for policy in policies}) == 1, f"{block}: entries differ"
        assert len({policy.weights().tobytes() for policy in policies}) == 1, f"{block}: weights differ"
    return sum(len(set(map(id, sharing))) > 1 for sharing in holders.values())


@pytest.mark.parametrize("share", ["ends", pytest.param("options", marks=pytest.mark.slow)])
def test_both_workers_of_a_path_leave_and_others_go_on_with_it(tmp_path: Path, share: str) -> None:
    folder = write_texts(tmp_path)

    async def main() -> None:
        simulation = Simulation(scenario(folder, 8, share=share))
        await simulation.start()
        await simulation.learn(known(simulation.watch), 80.0)
        jobs = jobs_of(simulation)
        workers: dict[int, list[int]] = {}
        for index, job in jobs.items():
            for path in job.works:
                workers.setdefault(path, []).append(index)
        assert sorted(workers) == [0, 1, 2, 3]
        assert [len(own) for own in workers.values()] == [2, 2, 2, 2]
        path = next(path for path, own in workers.items() if 0 not in own)  # the founder stays
        before = known(jobs[workers[path][0]].works[path].tested).loss
        for index in workers[path]:
            simulation.crash(index)
        await simulation.learn(known(simulation.watch), 60.0)
        left = jobs_of(simulation)
        (taker,) = [job for job in left.values() if path in job.works]
        assert "nobody trains it" in taker.reason
        first = taker.works[path].trainer.evaluate(taker.setup.genesis).loss
        assert known(taker.works[path].tested).loss < (before + first) / 2, "it went on from a copy, not from nothing"
        assert {one for job in left.values() for one in job.works} == {0, 1, 2, 3}
        simulation.rest()
        await simulation.learn(known(simulation.watch), 30.0)
        assert check_blocks_equal(list(left.values())) >= (3 if share == "ends" else 5)
        await simulation.finish()

    with one_thread():
        run_sim(main())


def test_two_nodes_take_turns_and_answer_commands(tmp_path: Path) -> None:
    data, private, out = tmp_path / "data", tmp_path / "private", tmp_path / "out"
    for folder in (data, private, out):
        folder.mkdir()
    write_texts(data, ("py", "prose"))
    write_texts(private, ("html",))

    async def main() -> None:
        simulation = Simulation(scenario(data, 2, paths="1x2"))
        await simulation.start()
        await simulation.learn(known(simulation.watch), 40.0)
        one, other = jobs_of(simulation).values()
        assert sorted([*one.works, *other.works]) == [0, 1]

        tables = (await one.execute(ControlRequest("router"))).tables
        assert [row[0] for row in tables[0].rows] == ["0", "1"]
        assert all(row[1] and row[4] for row in tables[0].rows), "documents and an example of each path"

        said = (await one.execute(ControlRequest("export", file=str(out / "m.safetensors"), path="all"))).said
        assert said.count("wrote the whole model") == 2
        states = [load_with_facts(out / f"m-{path}.safetensors") for path in (0, 1)]
        assert states[0][1]["job"] == "text path 0"
        assert any((states[0][0][name] != states[1][0][name]).any() for name in states[0][0])
        with pytest.raises(UsageError, match="there is no path '7'; paths go from 0 to 1"):
            await one.execute(ControlRequest("export", file=str(out / "m.safetensors"), path="7"))

        check_foreign_blocks(one)
        mixed = await one.reader.mixture("def f12(x):\n    return")
        assert len(mixed) == 2
        assert sum(model.share for model in mixed) == pytest.approx(1.0, abs=1e-3)
        request = ControlRequest("generate", prompt="def f12(x):\n", length=20, seed=1)
        assert (await one.execute(request)).said
        alone = await one.execute(replace_path(request, "1"))
        assert alone.said

        add = ControlRequest("expert", action="add", expert="pages", data=str(private), steps=24)
        said = (await one.execute(add)).said
        assert said.startswith("offers the expert pages, from path")
        await simulation.learn(known(simulation.watch), 20.0)
        html = "<p class='n12'>12</p>\n<p class='n"
        assert (await other.reader.mixture(html))[0].name == "expert pages"
        assert [row[0] for row in (await other.execute(ControlRequest("expert"))).tables[0].rows] == ["pages"]
        await other.execute(ControlRequest("expert", action="ignore", expert="pages"))
        assert "expert pages" not in [model.name for model in await other.reader.mixture(html)]
        with pytest.raises(UsageError, match="who alone can withdraw it"):
            await other.execute(ControlRequest("expert", action="remove", expert="pages"))
        content = other.experts.find("pages").content
        await one.execute(ControlRequest("expert", action="remove", expert="pages"))
        await simulation.learn(known(simulation.watch), 20.0)
        for job in (one, other):
            assert job.experts.offered() == []
            assert job.context.services.seams.storage.read(job.experts._file(content)) is None, "deleted everywhere"
        await simulation.finish()

    with one_thread():
        run_sim(main())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"paths": "3"}, "write LEVELSxOPTIONS, such as 2x2"),
        ({}, "how many paths? add paths=2x2"),
        ({"paths": "2x2", "task": "digits"}, "task digits has no blocks"),
        ({"paths": "2x8"}, "64 paths need 512 documents or more"),
        ({"paths": "2x2", "layers": 3}, "a model of 3 layers cannot be cut into 2 levels"),
        ({"paths": "2x2", "share": "some"}, "write ends, options or all"),
        ({"paths": "2x2", "prefix": 0}, "prefix=0 must be a number from 1 to 4096"),
        ({"paths": "2x2", "route": "labels"}, "have no labels; use route=documents"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, given: dict[str, object], message: str) -> None:
    write_texts(tmp_path)
    text: dict[str, object] = {"task": "gpt", "data": str(tmp_path), **SMALL}
    if given.get("task") == "digits":
        text = {}
    with pytest.raises(UsageError) as raised:
        p2pnode.simulate(2, jobs={"text": {"kind": "paths", **text, **given}}, seconds=5)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
