"""`share=`: a loop's data set whose shards travel, as the loop sees it and in a simulated swarm."""

from __future__ import annotations

import asyncio
import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from p2pnode.integrations.join import HookedLoop, LoopExtras
from p2pnode.integrations.ranks import Ranks
from p2pnode.jobs.loop.plan import different_samples
from p2pnode.jobs.loop.shards import beyond
from p2pnode.jobs.loop.shared_data import KEPT_BYTES, SharedData, in_form_of
from p2pnode.wire.errors import UsageError
from tests.jobs.loop.loop_swarm import Loop, LoopSwarm, run_loops


class Listed(Dataset[Any]):
    def __init__(self, samples: list[Any], classes: int = 0) -> None:
        self.samples, self.classes = samples, classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Any:
        return self.samples[row]


@dataclass
class Sample:
    x: Any
    y: int


Named = namedtuple("Named", "x y")


@pytest.mark.parametrize(
    "sample",
    [
        (torch.ones(2), 1),
        [torch.ones(2, dtype=torch.float16), torch.tensor(1)],
        {"x": np.ones(2, np.float32), "y": np.int64(1)},
        Sample(torch.ones(2), 1),
        Named(torch.ones(2), True),
        torch.ones(2),
    ],
)
def test_samples_of_others_look_like_the_users_own(sample: Any) -> None:
    data = SharedData(Listed([sample] * 3))
    columns = {name: column.numpy() for name, column in data.data().first(2).items()}
    assert data.add(columns)
    assert len(data) == 5 and data.own == 3
    got = data[3]
    assert type(got) is type(sample)
    for mine, theirs in zip(_values(got), _values(sample), strict=True):
        assert type(mine) is type(theirs) and np.array_equal(np.asarray(mine), np.asarray(theirs))
    assert np.array_equal(np.asarray(_values(data[-1])[0]), np.asarray(_values(got)[0]))
    with pytest.raises(IndexError):
        data[5]


def _values(sample: Any) -> list[Any]:
    if isinstance(sample, dict):
        return list(sample.values())
    return (
        [sample]
        if isinstance(sample, torch.Tensor)
        else list(vars(sample).values() if isinstance(sample, Sample) else sample)
    )


def test_loaders_with_workers_read_what_was_there_when_an_epoch_began() -> None:
    data = SharedData(TensorDataset(torch.arange(4.0), torch.arange(4)))
    data.add({"x": np.array([9.0, 8.0], np.float32), "y": np.array([1, 2])})
    for workers in (0, 2):
        seen = [float(value) for batch in DataLoader(data, 2, num_workers=workers) for value in batch[0]]
        assert seen == [0.0, 1.0, 2.0, 3.0, 9.0, 8.0]
    assert len(pickle.loads(pickle.dumps(data))) == 6  # as workers that are spawned get it


def test_samples_of_others_take_bounded_memory() -> None:
    data = SharedData({"x": torch.zeros(4, 1 << 20)})
    piece = {"x": np.zeros((16, 1 << 20), np.float32)}  # 64 MB
    assert [data.add(piece) for _ in range(5)] == [True] * 4 + [False]
    assert 4 * piece["x"].nbytes == KEPT_BYTES


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.zeros(1)


class Broken(Listed):
    def __getitem__(self, row: int) -> Any:
        raise OSError("the disk is gone")


class Random(Listed):
    def __getitem__(self, row: int) -> Any:
        return torch.rand(2), 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Stream(), "share= is a stream, which has no shards that could travel; give a map-style data set"),
        (DataLoader(Listed([torch.ones(1)])), "share= is a DataLoader; give its data set"),
        (Listed([]), "share= gave no samples"),
        (Listed([("text", 1)]), "has a str in 'x'; give tensors, arrays or numbers"),
        (Broken([1]), "raised OSError: the disk is gone"),
        (Random([1, 2]), "share= gives other values each time a row is read"),
        (3, "share= is a int; give a map-style data set or a dict of tensors"),
        ({"x": torch.ones(2), "y": torch.ones(3)}, "columns of unequal length"),
    ],
)
def test_what_cannot_travel_is_reported(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match="share=") as error:
        SharedData(given)
    assert said in str(error.value)


def test_ranks_do_not_share_data_since_theirs_would_grow_apart() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(UsageError, match="under torchrun leave it out"):
        HookedLoop(model, optimizer, LoopExtras(share=[torch.ones(2)]), Ranks(0, 2))


def test_other_samples_than_the_runs_are_reported() -> None:
    run = SharedData(Listed([(torch.ones(2), 1)])).columns()
    assert different_samples(run, SharedData(Listed([(torch.zeros(2), 0)])).form()) == ""
    shape = different_samples(run, SharedData(Listed([(torch.ones(3), 1)])).form())
    assert shape == "its samples have x as float32 [3], and the run's as float32 [2]"
    names = different_samples(run, SharedData(Listed([{"ids": torch.ones(2)}])).form())
    assert names == "its samples have the columns ids, and the run's x, y"


def test_the_plan_says_which_numbers_samples_may_have() -> None:
    columns = SharedData(Listed([(torch.full((2,), 3.0), 1), (torch.zeros(2), 0)], classes=5)).columns()
    limits = {column.name: (column.low, column.high) for column in columns}
    assert limits == {"x": (-300.0, 300.0), "y": (0.0, 4.0)}


def test_a_value_is_given_the_users_type() -> None:
    assert in_form_of({"x": 1.0}, {"x": np.float32(2.5)}) == {"x": 2.5}


class SharingLoop(Loop):
    """Draws from what its node gives it, as `DataLoader(swarm.data)` does."""

    def __init__(self, seed: int, classes: tuple[int, ...], count: int = 3) -> None:
        probe = Loop(seed, classes)
        probe.hooked.close()
        rows: Any = TensorDataset(probe.x, probe.y)
        rows.classes = count
        super().__init__(seed, classes, share=rows)

    async def run(self) -> None:
        while not self.source.closing.is_set():
            self.step()
            await asyncio.sleep(0.1)

    def step(self) -> None:
        rows = torch.randint(len(self.source.share), (16,), generator=self.draw).tolist()
        batch = [self.source.share[row] for row in rows]
        x, y = torch.stack([one for one, _ in batch]), torch.stack([label for _, label in batch])
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1


def test_shards_reach_a_loop_that_lacks_their_labels_and_loops_without_data_take_none() -> None:
    swarm = LoopSwarm([SharingLoop(0, (0, 1)), SharingLoop(1, (1, 2)), Loop(2, (0,))])

    def labels(index: int) -> set[int]:
        data = swarm.loops[index].source.share
        return {int(data[row][1]) for row in range(data.own, len(data))}

    async def scenario(swarm: LoopSwarm) -> None:
        for index in (0, 1, 2):
            swarm.start(index)
            await swarm.until(swarm.loops[index].source.arrived.is_set)
        await swarm.until(lambda: 2 in labels(0) and 0 in labels(1))
        status = swarm.job(0).status()
        assert status.training.samples == len(swarm.loops[0].source.share) > swarm.loops[0].source.share.own
        assert status.training.data_received_bytes > 0 and status.state.training.shards
        assert any(row.received for row in swarm.job(0).shard_rows())
        assert swarm.job(2).shards is None and swarm.job(2).shard_rows() == ()
        # A loop that crashes has what it received when it starts again.
        received = {row.id for row in swarm.job(1).shard_rows() if row.received}
        swarm.simulation.crash(1)
        swarm.loops[1].source.closing.set()
        swarm.loops[1] = SharingLoop(1, (1, 2))
        swarm.start(1)
        await swarm.until(swarm.loops[1].source.arrived.is_set)
        await swarm.until(lambda: swarm.job(1).shards.ready)  # type: ignore[union-attr]
        assert received <= {row.id for row in swarm.job(1).shard_rows() if row.received}
        await swarm.until(lambda: len(swarm.loops[1].source.share) > swarm.loops[1].source.share.own)

    run_loops(swarm, scenario)
    assert [loop.error for loop in swarm.loops] == [None] * 3


def test_labels_that_the_founders_data_do_not_have_stay_home_and_are_refused() -> None:
    """A label beyond the model's outputs would end another user's loop with an error."""
    swarm = LoopSwarm([SharingLoop(0, (0, 1), count=0), SharingLoop(1, (1, 2))])
    said: list[str] = []

    async def scenario(swarm: LoopSwarm) -> None:
        swarm.start(0)
        await swarm.until(swarm.loops[0].source.arrived.is_set)
        swarm.start(1)
        swarm.node(1).on_event(lambda event: said.append(event.text))
        await swarm.until(swarm.loops[1].source.arrived.is_set)
        limits = {column.name: (column.low, column.high) for column in swarm.job(1).plan.samples}
        assert beyond({"x": np.zeros((1, 2)), "y": np.array([2])}, limits).startswith("y has numbers beyond 0 to 1")
        assert "x has" in beyond({"x": np.full((1, 2), np.nan), "y": np.array([1])}, limits)
        await swarm.until(lambda: swarm.job(1).shards.ready)  # type: ignore[union-attr]
        assert not swarm.job(1).shards.driver.ids()  # type: ignore[union-attr]

    run_loops(swarm, scenario)
    warning = next(text for text in said if "do not travel" in text)
    assert "y has numbers beyond 0 to 1, which the founder's data have" in warning and "`classes`" in warning


@pytest.mark.parametrize(
    ("founder", "joiner", "said"),
    [
        (None, Listed([(torch.ones(2), 1)]), "the run's founder shares no data"),
        (Listed([(torch.ones(2), 1)]), Listed([(torch.ones(3), 1)]), "its samples have x as float32 [3]"),
    ],
)
def test_data_that_do_not_fit_the_run_are_reported(founder: Any, joiner: Any, said: str) -> None:
    swarm = LoopSwarm([Loop(0, share=founder), Loop(1, share=joiner)])

    async def scenario(swarm: LoopSwarm) -> BaseException | None:
        swarm.start(0)
        await swarm.until(swarm.loops[0].source.arrived.is_set)
        swarm.start(1)
        await swarm.until(lambda: swarm.problem(1) is not None)
        return swarm.problem(1)

    problem = run_loops(swarm, scenario)
    assert isinstance(problem, UsageError) and said in str(problem)
