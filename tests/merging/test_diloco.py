"""DiLoCo against a golden trajectory: a plain loop in one process, and a quadratic with a known answer."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from p2pnode.compression.weights import Floats, to_units
from p2pnode.merging.diloco import AVERAGE_EVERY, DiLoCo
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.merging.snapshots.outline import Snapshot
from p2pnode.wire.ids import Identity

SIZE, PEERS, STEPS, OUTER = 40, 3, 10, 25
RATE, MU, INNER = 0.7, 0.9, 0.05


def targets() -> list[Floats]:
    rng = np.random.Generator(np.random.PCG64(3))
    return [rng.normal(0, 1, SIZE).astype(np.float32) for _ in range(PEERS)]


def inner(x: Floats, target: Floats) -> Floats:
    """Gradient descent on ½‖x − target‖²."""
    for _ in range(STEPS):
        x = x - np.float32(INNER) * (x - target)
    return x


def golden(genesis: Floats) -> list[Floats]:
    """φ after each outer step, by the book, in double precision: Nesterov on the mean of φ − x."""
    phi, momentum = genesis.astype(np.float64), np.zeros(SIZE)
    trajectory = []
    for _ in range(OUTER):
        gradient = np.mean([phi - inner(phi.astype(np.float32), target) for target in targets()], axis=0)
        momentum = MU * momentum + gradient
        phi = phi - RATE * (gradient + MU * momentum)
        trajectory.append(phi.astype(np.float32))
    return trajectory


def node(number: int, **settings: float) -> tuple[Identity, DiLoCo]:
    identity = Identity(blake3(f"node {number}".encode()).digest())
    genesis = to_units(np.zeros(SIZE, np.float32) + np.float32(0.5))
    given = {"steps": STEPS, "wait": 0, "rate": RATE, "momentum": MU, **settings}
    return identity, DiLoCo(PolicySetup(genesis, identity, "ab" * 32, "main", "cd" * 32, given, number))


def exchange(a: tuple[Identity, DiLoCo], b: tuple[Identity, DiLoCo]) -> None:
    push = a[1].take(b[0].peer_id, b[1].answer(a[0].peer_id, a[1].ask(b[0].peer_id)))
    if push:
        b[1].take(a[0].peer_id, push)


def say(one: tuple[Identity, DiLoCo], target: Floats) -> None:
    begun = one[1].start()
    one[1].publish(one[1].record(begun, inner(begun, target), RoundFacts(STEPS, 0.0, 1, PEERS)))


def test_the_trajectory_is_the_golden_one() -> None:
    nodes = [node(number) for number in range(PEERS)]
    for wanted in golden(nodes[0][1].start()):
        for one, target in zip(nodes, targets(), strict=True):
            say(one, target)
        for place, one in enumerate(nodes):
            for other in nodes[place + 1 :]:
                exchange(one, other)
        for one in nodes:
            one[1].merge()
            assert np.allclose(one[1].start(), wanted, atol=2e-4)
        assert all(np.array_equal(nodes[0][1].start(), one[1].start()) for one in nodes)


def test_what_comes_late_enters_the_next_step() -> None:
    a, b = node(0), node(1)
    say(a, targets()[0])
    assert a[1].merge().entries == 0  # nobody waits
    say(b, targets()[1])
    exchange(a, b)
    assert a[1].merge().entries == 0  # between outer steps
    say(a, targets()[0])
    assert a[1].merge().entries == 1


def test_outer_weights_that_drifted_apart_are_averaged() -> None:
    a, b = node(0, rate=0.0), node(1, rate=0.0)  # φ stays where it is but for averaging
    b[1].adopt(snapshot_at(np.zeros(SIZE, np.float32)))
    for _ in range(AVERAGE_EVERY):
        for one, target in zip((a, b), targets(), strict=False):
            say(one, target)
        exchange(a, b)
        a[1].merge(), b[1].merge()
    assert np.allclose(a[1].readout(), b[1].readout(), atol=0.5)
    assert np.allclose(a[1].start(), 0.25, atol=1e-5)
    assert np.allclose(b[1].start(), 0.25, atol=1e-5)


def snapshot_at(phi: Floats) -> Snapshot:
    return Snapshot(b"", bytes(8) + np.concatenate([phi, np.zeros_like(phi)]).astype("<f4").tobytes())


def test_dense_bytes_are_those_of_the_numbers() -> None:
    a, b = node(0), node(1)
    say(b, targets()[0])
    answer = b[1].answer(a[0].peer_id, a[1].ask(b[0].peer_id))
    assert 4 * SIZE <= len(answer) <= 4 * SIZE + 16
