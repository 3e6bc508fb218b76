"""Training on shards: which rows, what arrives and goes, visits, and samples that cannot be trained on."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from p2pnode.config.options import Quarantine
from p2pnode.jobs.model import own_shards
from p2pnode.jobs.train import shard_training
from p2pnode.jobs.train.shard_rows import ShardRows
from p2pnode.jobs.train.shard_training import VISIT_ROUNDS, ShardTraining
from p2pnode.runtime.events import Events
from p2pnode.runtime.seams import Seams, inline
from p2pnode.shards import rows as rows_module
from p2pnode.shards.rows import listed
from p2pnode.shards.shard import columns_id
from p2pnode.shards.visits import VisitHistory, check_history, length
from p2pnode.storage.files import MemoryStorage
from p2pnode.tasks.data import InMemory, rows
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.task import Task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.status import ShardRow
from tests.jobs.train.setups import train_setup
from tests.known import known
from tests.scenarios.rows_task import ByIndex

ME = Identity(bytes(31) + b"\1")
ROWS = np.arange(400, 700)
CLOCK = SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 1000.0)


class MemoryShards:
    """A shard driver in memory, without peers."""

    def __init__(self) -> None:
        self.content: dict[str, dict[str, np.ndarray]] = {}
        self.own: dict[str, object] = {}
        self.histories: dict[str, VisitHistory] = {}

    def add_own(self, shard: str, make) -> None:
        self.own[shard] = make

    async def start(self) -> None:
        pass

    def ids(self) -> list[str]:
        return [*self.own, *self.content]

    def read(self, shard: str) -> dict[str, np.ndarray]:
        return self.content[shard]

    def history(self, shard: str) -> VisitHistory:
        return self.histories.get(shard, VisitHistory(shard))

    def set_history(self, history: VisitHistory) -> None:
        self.histories[history.shard] = history

    def row(self, shard: str) -> ShardRow:
        return ShardRow(shard, 100, 1000, ME.peer_id, visits=length(self.history(shard)))

    def arrive(self, columns: dict[str, np.ndarray]) -> str:
        shard = columns_id(columns)
        self.content[shard] = columns
        return shard

    def go(self, shard: str) -> None:
        self.own.pop(shard, None)
        self.content.pop(shard, None)


def work(task: Task | None = None, **more) -> ShardTraining:
    seams = Seams(CLOCK, random.Random(1), MemoryStorage(), inline)
    services = SimpleNamespace(identity=ME, seams=seams, events=Events(CLOCK), clock=SimpleNamespace(now=CLOCK.time))
    trainer = Trainer(ModelHost(task or Digits()), np.empty(0, np.int64))
    return ShardTraining(services, MemoryShards(), trainer, train_setup(1.0, 100, **more))  # type: ignore[arg-type]


def shards_of(one: ShardTraining) -> MemoryShards:
    assert isinstance(one._shard_driver, MemoryShards)
    return one._shard_driver


def columns(which: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column.numpy() for name, column in rows(Digits().data(), torch.from_numpy(which)).items()}


def brought(**options) -> ShardTraining:
    one = work(rows=ROWS, share_data=True, **options)
    asyncio.run(one.start())
    one._trainer.use(one.rows([]))
    return one


def take_in(one: ShardTraining, round: int = 0) -> None:
    asyncio.run(one.take_in(lambda: one._trainer.model_host.genesis, round))


def said(one: ShardTraining, kind: str) -> list[str]:
    return [event.text for event in one._services.events.latest() if event.kind == kind]


def test_what_a_node_brings_is_cut_into_shards_and_trained_on() -> None:
    one = brought()
    assert len(one._own) == 3
    assert sorted(listed(one.rows([]))) == ROWS.tolist()
    shard = next(iter(one._own))
    shards_of(one).go(shard)
    take_in(one)
    assert len(one.rows([])) == 200


def test_data_that_cannot_travel_is_refused_in_one_line() -> None:
    one = work(rows=ROWS, share_data=True)
    samples = {"x": torch.zeros(1437, 8, 8, dtype=torch.complex64), "y": torch.zeros(1437)}
    one._trainer.model_host.data = InMemory(samples)
    with pytest.raises(UsageError, match=r"--share-data.*complex64"):
        asyncio.run(one.start())


def test_rows_that_are_read_by_index_are_the_same_shards_and_bad_ones_are_left_out() -> None:
    in_memory, by_index = brought(), brought(task=ByIndex())
    assert by_index._own.keys() == in_memory._own.keys()
    bad = brought(task=ByIndex(bad=100))
    offered = np.concatenate([listed(shard.indices) for shard in bad._own.values()])
    assert sorted(offered) == [row for row in ROWS.tolist() if row % 100]


def test_of_many_rows_that_must_be_read_some_are_offered_and_all_are_trained_on(monkeypatch) -> None:
    monkeypatch.setattr(own_shards, "OFFERED_SAMPLES", 200)
    one = brought(task=ByIndex())
    assert len(one._own) == 2 and len(one.rows([])) == 300
    shards_of(one).go(next(iter(one._own)))
    take_in(one)
    assert len(one.rows([])) == 200


def test_many_rows_are_dealt_without_reading_or_listing_them(monkeypatch) -> None:
    monkeypatch.setattr(rows_module, "LISTED", 500)
    monkeypatch.setattr(shard_training, "LISTED", 500)
    monkeypatch.setattr(shard_training, "LARGE_SHARDS", 8)
    task = ByIndex()
    dealt = []
    for me in ("a", "b"):
        one = work(task=task)
        one._services.identity = SimpleNamespace(peer_id=me)  # type: ignore[misc,assignment]
        dealt.append(one.rows(["a", "b"]))
        one._trainer.use(dealt[-1])
        assert len(one._trainer.pool) == min(500, len(dealt[-1]))
        assert sum(len(one._trainer.pool.places(shard.indices)) for shard in one.dealt) == len(one._trainer.pool)
    assert sorted(np.concatenate([listed(rows) for rows in dealt]).tolist()) == list(range(1437))


def test_what_comes_is_trained_on_and_looked_at_first() -> None:
    one = brought()
    shard = shards_of(one).arrive(columns(np.arange(100)))
    take_in(one)
    assert one._trainer.samples == 400
    assert 0 < one._trainer.pool.scores.confidence.mean(one.places(shard)) < 0.5
    assert "100 samples, confidence 0." in said(one, "received")[0]
    assert len(one.taught) == 1 and one.received_bytes == 1000
    shards_of(one).go(shard)
    take_in(one)
    assert one._trainer.samples == 300


@pytest.mark.parametrize("label", [99, -1, 1 << 40])
def test_samples_that_would_break_training_are_left_out_and_reported(label: int) -> None:
    one = brought()
    shard = shards_of(one).arrive({**columns(np.arange(100)), "y": np.full(100, label)})
    take_in(one)
    assert one._trainer.samples == 300
    assert "not trained on" in one.unusable[shard] and len(said(one, "shards")) == 1
    one._trainer.steps(one._trainer.model_host.genesis, 20)


def test_training_on_a_shard_is_signed_as_a_visit_that_others_can_check() -> None:
    one = brought()
    shard = shards_of(one).arrive(columns(np.arange(100)))
    take_in(one)
    weights = one._trainer.model_host.genesis
    for round in range(1, 3 * VISIT_ROUNDS):
        weights = one._trainer.steps(weights, 10).weights
        asyncio.run(one.end_round(round))
    history = one._shard_driver.history(shard)
    check_history(history, shard, one._services.clock.now())
    assert length(history) == 2
    first, second = history.visits
    assert first.peer == first.model == ME.peer_id
    assert first.before < 0.2 < first.after and second.before > first.before
    assert one.visited()[0] and shard in one.visited()[0]


def test_labels_of_data_that_stays_home_are_not_sent_to_peers() -> None:
    open, closed = work(), work(rows=np.arange(64))
    for one in (open, closed):
        one._trainer.use(ROWS)
    assert known(open.label_counts()).sum() == 300
    assert closed.label_counts() is None
    shards_of(closed).arrive(columns(np.arange(100)))
    take_in(closed)
    assert known(closed.label_counts()).sum() == 100


@pytest.mark.parametrize(("when", "share"), [("auto", 0.5), ("off", 0.0)])
def test_shards_travel_by_the_states_that_are_used_and_shown(when: Quarantine, share: float) -> None:
    """With --quarantine off a shard that models fail at is trained on, so it may travel too."""
    one = brought(quarantine=when)
    shard, pool = next(iter(one._own)), one._trainer.pool
    shares = np.full(len(pool), 0.9, np.float32)
    shares[one.places(shard)[::2]] = 0.01
    for _ in range(16):
        pool.note(np.arange(len(pool)), shares)
        pool.end_round(["a", "b"])
    assert one.view(shard).quarantined == share
    row = ShardRows(one, one._shard_driver, pool, ME.peer_id, {}).all(0.0)[0]  # type: ignore[arg-type]
    assert row.id == shard and row.states.get("quarantined", 0) == share * row.samples


def test_rows_for_people() -> None:
    one = brought()
    shard = next(iter(one._own))
    shipped = {shard: "copy to owl: at random"}
    shows = ShardRows(one, one._shard_driver, one._trainer.pool, ME.peer_id, shipped)  # type: ignore[arg-type]
    one._trainer.steps(one._trainer.model_host.genesis, 20)
    row = shows.one(shard[:6].upper(), 0.0)
    assert row.states == {"active": 100} and 0 < (row.confidence or 0) < 1 and row.reason == "copy to owl: at random"
    assert shows.all(1.0) is shows.all(2.0)
    for prefix in ("", "zz"):
        with pytest.raises(UsageError, match="no shard"):
            shows.one(prefix, 0.0)


def test_shards_dealt_from_what_all_can_make_are_shown_too() -> None:
    one = work()
    one._trainer.use(one.rows([]))
    found = ShardRows(one, one._shard_driver, one._trainer.pool, ME.peer_id, {}).all(0.0)  # type: ignore[arg-type]
    assert len(found) == 14 and sum(row.samples for row in found) == 1437
    assert all(row.holder == ME.peer_id and row.size_bytes == row.samples * 72 for row in found)
