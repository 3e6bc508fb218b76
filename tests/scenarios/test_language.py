"""A swarm that learns a language model: it gets better, writes, is compared, passes data on, and leaves noise out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.config.split import parse_split
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.tasks.find import load_task
from p2pnode.tasks.generation import Generation
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import UsageError
from tests.known import known, train_job

SENTENCES = (b"the quick brown fox jumps over the lazy dog. ", b"pack my box with five dozen liquor jugs now. ")
CONTEXT = 15  # a third of a sentence
NOISE = 20  # every so many windows
SMALL: dict[str, int | float | str] = {
    "width": 32, "layers": 1, "heads": 2, "context": CONTEXT, "learning_rate": 0.01, "warmup": 5, "algorithm": "muon",
}  # fmt: skip


def texts(folder: Path) -> Path:
    """A file for each sentence, again and again, in which some windows are noise."""
    chance = np.random.default_rng(1)
    for number, sentence in enumerate(SENTENCES):
        windows = np.frombuffer(sentence * 200, np.uint8).copy().reshape(-1, CONTEXT)
        windows[::NOISE] = chance.integers(1, 256, windows[::NOISE].shape)
        (folder / f"{number}.txt").write_bytes(windows.tobytes())
    return folder


def left_out(simulation: Simulation) -> tuple[int, int, int]:
    """The windows that nodes leave out and that are noise, all that they leave out, and all that are noise."""
    counts = np.zeros(3, np.int64)
    for process in simulation.processes.values():
        pool = train_job(process.node).trainer.pool
        windows = pool.batch(torch.arange(len(pool)))["x"].numpy()
        noise = np.isin(windows, list(b"".join(SENTENCES)), invert=True).sum(1) > CONTEXT // 3
        out = pool.scores.states.quarantined
        counts += (noise & out).sum(), out.sum(), noise.sum()
    return int(counts[0]), int(counts[1]), int(counts[2])


def test_four_nodes_learn_to_write(tmp_path: Path) -> None:
    options = replace(
        SIMULATED,
        task="gpt",
        task_options=dict(SMALL),
        settings={"signs": 0.0},  # with sign entries half to two thirds of the noise is left out (docs/log.md)
        data=texts(tmp_path),
        split=parse_split("parts"),
        share_data=True,
    )
    plan = Scenario(peers=4, seed=3, seconds=400.0, sample_every=0.0, training=SimTraining(options, rounds=40))
    found: list[tuple[int, int, int]] = []
    written: list[str] = []

    async def main() -> SimResult:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, plan.seconds)
        found.append(left_out(simulation))
        for prompt in ("the quick b", "pack my b"):
            request = ControlRequest("generate", prompt=prompt, length=30, temperature=0.0)
            answer = await simulation.processes[0].node.execute(request)
            assert answer.generation == "", "a simulation generates it all at once"
            written.append(answer.said)
        return await simulation.finish()

    with one_thread():
        result = run_sim(main())
    ((both, out, noise),) = found
    assert both / out > 0.9 and both / noise > 0.8, (both, out, noise)
    assert written[0].startswith("rown ") and written[1].startswith("ox "), "it learned the texts of both halves"
    status = known(result.statuses[0])
    job = status.jobs["main"]
    (bits,) = job.state.figures
    assert bits.name == "bits_per_byte" and isinstance(bits.value, float) and 0 < bits.value < 1.0
    assert [table.title for table in job.tables] == ["the model writes"]
    assert any(event.kind == "sample" for event in status.events)
    assert all(peer.similarity is not None for peer in status.peers), "models are compared by their fingerprints"
    rows = [row for one in result.statuses for row in known(one).shards]
    assert any(row.received and row.confidence is not None and row.confidence > 0.5 for row in rows)
    with pytest.raises(UsageError, match="generates no text"):
        load_task("digits").generate(nn.Identity(), "x", Generation())
