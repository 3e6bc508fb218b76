"""A newcomer's short training alone: it tells its kind of data, costs a round at the most, and leaves no trace."""

from __future__ import annotations

import random

import numpy as np
import pytest

from p2pnode.discovery.services import Services, make_services
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.seams import Seams
from p2pnode.similarity.fingerprint import read_fingerprint, similarity
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.tasks.digits import Digits
from p2pnode.training.fingerprinter import Fingerprinter
from p2pnode.training.host import ModelHost
from p2pnode.training.newcomer_probe import ENOUGH, FEWEST, NewcomerProbe
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import Identity

HOST = ModelHost(Digits(hidden=16), "cpu", seed=1)
LABELS = HOST.task.data()["y"].numpy()
TAKER = Fingerprinter(HOST, 1)


class Charged:
    """Computes at once, and notes how many local steps that is."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    async def __call__(self, work, steps=0):
        self.steps.append(steps)
        return work()


def parts_of(compute: Charged) -> Services:
    world = Seams(SimClock(0.0), random.Random(1), MemoryStorage(), compute)
    return make_services(Identity(b"\1" * 32), world, SimSwarm(1).network(Identity(b"\1" * 32).peer_id))


def looked(
    trainer: Trainer, taker: Fingerprinter | None = TAKER, round_seconds: float = 5.0
) -> tuple[bytes, list[int]]:
    """What a look shows, asked for twice, and the steps that were charged."""

    async def main() -> tuple[bytes, list[int]]:
        compute = Charged()
        look = NewcomerProbe(parts_of(compute), trainer, taker, round_seconds)
        first = await look.fingerprint()
        assert await look.fingerprint() == first
        return first, compute.steps

    return run_virtual(main())


def rows(kind: int, number: int) -> np.ndarray:
    """Some of the samples that have these labels; other numbers, other samples."""
    return np.flatnonzero((LABELS < 5) == (kind == 0))[number::3]


def test_it_tells_the_kind_of_data_from_models_that_learned_much_longer() -> None:
    trained = [Trainer(HOST, rows(kind, 0), seed=kind).steps(HOST.genesis, 600).weights for kind in (0, 1)]
    known = [read_fingerprint(TAKER.look(Trainer(HOST), weights)) for weights in trained]
    for kind in (0, 1):
        mine = read_fingerprint(looked(Trainer(HOST, rows(kind, 1)))[0])
        assert similarity(mine, known[kind]) > similarity(mine, known[1 - kind]) + 0.1


def test_training_begins_as_if_it_had_not_been() -> None:
    trainer, other = (Trainer(HOST, rows(0, 0), seed=2) for _ in range(2))
    shown, _ = looked(trainer)
    assert shown
    assert trainer.steps_done == 0
    assert np.array_equal(trainer.steps(HOST.genesis, 7).weights, other.steps(HOST.genesis, 7).weights)
    assert TAKER.due(0.0), "the first round's own fingerprint need not wait"


@pytest.mark.parametrize(
    ("speed", "charged"),
    [(2.0 * ENOUGH, [ENOUGH]), (FEWEST / 5.0, [FEWEST]), (FEWEST / 5.0 - 0.2, []), (None, [ENOUGH])],
)
def test_it_takes_a_round_at_the_most_and_is_left_out_where_that_is_too_short(speed, charged) -> None:
    shown, steps = looked(Trainer(HOST, declared_speed=speed), round_seconds=5.0)
    assert steps == charged
    assert bool(shown) == bool(charged)


def test_where_the_speed_is_not_known_the_clock_ends_it() -> None:
    trainer = Trainer(HOST)
    done = []

    def brake() -> bool:
        done.append(1)
        return False

    trainer.brake = brake
    shown, _ = looked(trainer, round_seconds=0.0)
    assert len(done) == 1
    assert shown == b"", "one step tells nothing"


def test_without_data_or_a_probe_there_is_none() -> None:
    assert looked(Trainer(HOST, np.empty(0, np.int64))) == (b"", [])
    assert looked(Trainer(HOST), taker=None) == (b"", [])
