"""Laws of every merge policy: a newcomer in POLICIES is tested before a test is written for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from blake3 import blake3

from p2pnode.compression.weights import Floats, to_units
from p2pnode.merging.policy import Policy, PolicySetup, RoundFacts
from p2pnode.merging.registry import POLICIES, policy_named
from p2pnode.wire.ids import Identity

SIZE = 600
LINEAGE = "ab" * 32
VARIANTS: dict[str, tuple[str, dict[str, float]]] = {
    **{name: (name, {}) for name in POLICIES if name != "diloco"},
    "diloco": ("diloco", {"steps": 10}),
    "deltaset, dense": ("deltaset", {"density": 0.1, "bits": 8}),
    "deltaset, signs": ("deltaset", {"signs": 1}),
    "average, 16 bits": ("average", {"bits": 16}),
    "average, 8 bits": ("average", {"bits": 8}),
    "average, 4 bits": ("average", {"bits": 4}),
    "gossip, 4 bits": ("gossip", {"bits": 4, "density": 0.02}),
    "gossip, without momentum": ("gossip", {"eta": 1, "beta": 0, "gamma": 1, "density": 0.6, "bits": 32}),
    "diloco, at once": ("diloco", {"steps": 5, "wait": 0}),
    "diloco, 4 bits": ("diloco", {"steps": 5, "wait": 0, "bits": 4}),
    "diloco, sparse": ("diloco", {"steps": 5, "wait": 0, "density": 0.05}),
}
AVERAGING = [name for name, (policy, _) in VARIANTS.items() if policy in ("average", "gossip")]
every_policy = pytest.mark.parametrize("variant", VARIANTS)


@dataclass
class Node:
    identity: Identity
    policy: Policy


def genesis() -> Floats:
    return np.random.Generator(np.random.PCG64(5)).normal(0, 0.1, SIZE).astype(np.float32)


def make(variant: str, number: int) -> Node:
    name, settings = VARIANTS[variant]
    identity = Identity(blake3(f"node {number}".encode()).digest())
    origin = PolicySetup(to_units(genesis()), identity, LINEAGE, "main", "cd" * 32, settings, number)
    return Node(identity, policy_named(name)(origin))


def progress(seed: int) -> Floats:
    return np.random.Generator(np.random.PCG64(seed)).normal(0, 0.01, SIZE).astype(np.float32)


def train(node: Node, seed: int, peers: int = 2) -> bytes:
    begun = node.policy.start()
    draft = node.policy.record(begun, begun + progress(seed), RoundFacts(5, 1.0, 160, peers))
    return node.policy.publish(draft)


def exchange(a: Node, b: Node) -> list[bytes]:
    """`a` asks `b`; all that was said."""
    ask = a.policy.ask(b.identity.peer_id)
    answer = b.policy.answer(a.identity.peer_id, ask)
    push = a.policy.take(b.identity.peer_id, answer)
    if push:
        b.policy.take(a.identity.peer_id, push)
    return [ask, answer, push]


def rounds(nodes: list[Node], count: int, first_seed: int = 0) -> None:
    """All train, everybody meets everybody, all merge."""
    for number in range(count):
        for place, node in enumerate(nodes):
            train(node, first_seed + 100 * number + place, len(nodes))
        for place, node in enumerate(nodes):
            for other in nodes[place + 1 :]:
                exchange(node, other)
        for node in nodes:
            node.policy.merge()


def apart(a: Node, b: Node) -> float:
    return float(np.linalg.norm(a.policy.start() - b.policy.start()))


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@every_policy
def test_all_begin_at_the_genesis_with_arrays_of_their_own(variant: str) -> None:
    node = make(variant, 1)
    assert np.allclose(node.policy.start(), genesis(), atol=1e-7)
    node.policy.start()[:] = 0
    node.policy.readout()[:] = 0
    assert np.allclose(node.policy.start(), genesis(), atol=1e-7)
    assert np.allclose(node.policy.readout(), genesis(), atol=1e-7)


@every_policy
def test_nodes_with_equal_weights_stay_equal(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    for _ in range(3):
        exchange(a, b)
        a.policy.merge(), b.policy.merge()
    assert apart(a, b) < 1e-6
    assert np.allclose(a.policy.start(), genesis(), atol=1e-6)


@pytest.mark.parametrize("variant", AVERAGING)
def test_an_exchange_moves_two_nodes_together(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    train(a, 1), train(b, 2)
    before = apart(a, b)
    exchange(a, b)
    a.policy.merge(), b.policy.merge()
    assert apart(a, b) < before * (0.5 if "average" in variant else 1.0)


def test_dense_averaging_meets_in_the_middle() -> None:
    a, b = make("average", 1), make("average", 2)
    train(a, 1), train(b, 2)
    middle = (a.policy.start() + b.policy.start()) / 2
    exchange(a, b)
    a.policy.merge(), b.policy.merge()
    assert np.allclose(a.policy.start(), middle, atol=1e-6)
    assert np.allclose(b.policy.start(), middle, atol=1e-6)


@pytest.mark.parametrize("variant", [*(n for n in AVERAGING if "average" in n), "gossip, without momentum"])
def test_what_is_learned_during_an_exchange_is_kept_whole(variant: str) -> None:
    """Nodes exchange while they train: the mean of two still moves by the mean of all they learned."""
    a, b = make(variant, 1), make(variant, 2)
    learned = np.zeros(SIZE, np.float32)
    for number in range(20):
        begun = a.policy.start(), b.policy.start()
        exchange(a, b)
        for place, node in enumerate((a, b)):
            step = progress(2 * number + place)
            node.policy.publish(node.policy.record(begun[place], begun[place] + step, RoundFacts(5, 1.0, 160, 2)))
            learned += step / 2
        a.policy.merge(), b.policy.merge()
    moved = (a.policy.start() + b.policy.start()) / 2 - genesis()
    assert np.allclose(moved, learned, atol=1e-5)


@every_policy
def test_a_circle_agrees_about_what_is_worth_keeping(variant: str) -> None:
    """Nodes that drift apart alone stay close when they meet; without it a policy would not be one."""
    together, alone = [make(variant, n) for n in range(4)], [make(variant, n) for n in range(4)]
    rounds(together, 12)
    for place, node in enumerate(alone):
        for number in range(12):
            train(node, 100 * number + place, 1)
            node.policy.merge()
    assert apart(together[0], together[1]) < 0.9 * apart(alone[0], alone[1])


@every_policy
def test_a_lone_node_trains_on(variant: str) -> None:
    """Its own progress, or what of it was published, is where it goes on; nothing is undone by empty merges."""
    node = make(variant, 1)
    wanted = np.zeros(SIZE, np.float32)
    for number in range(30):
        train(node, number % 3, 1)
        wanted += progress(number % 3)
        node.policy.merge()
    moved = node.policy.start() - genesis()
    cosine = float(moved @ wanted / np.linalg.norm(moved) / np.linalg.norm(wanted))
    assert cosine > 0.3
    node.policy.merge()  # what was due
    before = node.policy.start()
    for _ in range(3):
        node.policy.merge()
    assert np.allclose(node.policy.start(), before)


@every_policy
def test_answers_that_come_twice_count_once(variant: str) -> None:
    (a, b), (c, d) = ([make(variant, 1), make(variant, 2)] for _ in range(2))
    for x, y, times in ((a, b, 1), (c, d, 3)):
        train(x, 1), train(y, 2)
        said = exchange(x, y)
        for _ in range(times - 1):
            x.policy.take(y.identity.peer_id, said[1])
            if said[2]:
                y.policy.take(x.identity.peer_id, said[2])
        x.policy.merge(), y.policy.merge()
    assert np.array_equal(a.policy.start(), c.policy.start())
    assert np.array_equal(b.policy.start(), d.policy.start())


@every_policy
def test_old_and_reordered_answers_do_no_harm(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    old: list[list[bytes]] = []
    for number in range(6):
        train(a, number), train(b, 50 + number)
        old.append(exchange(a, b))
        a.policy.merge(), b.policy.merge()
    before = a.policy.start(), b.policy.start()
    for said in reversed(old):
        a.policy.take(b.identity.peer_id, said[1])
        if said[2]:
            b.policy.take(a.identity.peer_id, said[2])
    a.policy.merge(), b.policy.merge()
    if VARIANTS[variant][0] != "diloco":  # whose outer step may be due
        assert np.array_equal(a.policy.start(), before[0])
        assert np.array_equal(b.policy.start(), before[1])


@every_policy
def test_a_restored_policy_goes_on_identically(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    rounds([a, b], 7)
    again_a, again_b = make(variant, 1), make(variant, 2)
    for node, fresh in ((a, again_a), (b, again_b)):
        fresh.policy.restore(node.policy.state(), [])
        assert same(fresh.policy.state(), node.policy.state())
    rounds([a, b], 6, first_seed=9000)
    rounds([again_a, again_b], 6, first_seed=9000)
    assert np.array_equal(a.policy.start(), again_a.policy.start())
    assert np.array_equal(a.policy.readout(), again_a.policy.readout())
    assert np.array_equal(b.policy.start(), again_b.policy.start())


@every_policy
def test_what_a_restart_publishes_is_still_news(variant: str) -> None:
    """A node restored from an older state and its journal is heard again."""
    a, b = make(variant, 1), make(variant, 2)
    state, journal = a.policy.state(), []
    for number in range(4):
        journal.append(train(a, number))
        train(b, 70 + number)
        exchange(a, b)
        a.policy.merge(), b.policy.merge()
    back = make(variant, 1)
    back.policy.restore(state, [entry for entry in journal if entry])
    entries = 0
    for number in range(12):
        train(back, 30 + number), train(b, 80 + number)
        exchange(back, b)
        back.policy.merge()
        entries += b.policy.merge().entries
    assert entries > 0


@every_policy
def test_state_of_another_model_is_refused(variant: str) -> None:
    node = make(variant, 1)
    state = {name: array[: len(array) // 2] for name, array in node.policy.state().items()}
    with pytest.raises(ValueError):  # noqa: PT011
        make(variant, 2).policy.restore(state, [])


@every_policy
def test_a_newcomer_starts_where_the_others_are(variant: str) -> None:
    nodes = [make(variant, 1), make(variant, 2)]
    rounds(nodes, 6)
    newcomer = make(variant, 3)
    given = nodes[0].policy.snapshot()
    assert given is not None
    newcomer.policy.adopt(given)
    assert apart(newcomer, nodes[0]) < 0.9 * float(np.linalg.norm(nodes[0].policy.start() - genesis()))
    rounds([*nodes, newcomer], 3, first_seed=4000)
    for broken in (b"", b"x" * 50, bytes(given.content)[:-3]):
        before = newcomer.policy.start()
        with pytest.raises(ValueError):  # noqa: PT011
            newcomer.policy.adopt(replace(given, content=broken))
        assert np.array_equal(newcomer.policy.start(), before)


@every_policy
def test_malformed_bytes_are_refused_and_change_nothing(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    rounds([a, b], 3)
    train(a, 71), train(b, 72)
    partner = b.identity.peer_id
    ask = b.policy.ask(a.identity.peer_id)
    answer = b.policy.answer(a.identity.peer_id, a.policy.ask(partner))
    before, rng = a.policy.state(), random.Random(4)
    refused = 0
    for message in [b"", b"\0", b"\xff" * 40, rng.randbytes(2000), *(mutated(answer, rng) for _ in range(300))]:
        try:
            make_copy(variant, a).policy.take(partner, message)
        except ValueError:
            refused += 1
    for message in [b"\xff" * 40, rng.randbytes(2000), *(mutated(ask, rng) for _ in range(100))]:
        try:
            a.policy.answer(partner, message)
        except ValueError:
            refused += 1
    assert refused > 100
    assert same(a.policy.state(), before)


@every_policy
def test_a_refused_answer_leaves_no_trace(variant: str) -> None:
    a, b = make(variant, 1), make(variant, 2)
    rounds([a, b], 2)
    train(a, 71), train(b, 72)
    partner, rng = b.identity.peer_id, random.Random(8)
    answer = b.policy.answer(a.identity.peer_id, a.policy.ask(partner))
    for _ in range(100):
        before = a.policy.state()
        try:
            a.policy.take(partner, mutated(answer, rng))
        except ValueError:
            assert same(a.policy.state(), before)
    a.policy.merge()
    assert np.isfinite(a.policy.start()).all()


def make_copy(variant: str, node: Node) -> Node:
    copy = make(variant, 1)
    copy.policy.restore(node.policy.state(), [])
    return copy


def mutated(message: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut or added."""
    data = bytearray(message)
    how = rng.randrange(3)
    if how == 0 and data:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == 1:
        del data[rng.randrange(len(data) + 1) :]
    else:
        data += rng.randbytes(rng.randint(1, 9))
    return bytes(data)


@every_policy
def test_the_same_seeds_give_the_same_weights(variant: str) -> None:
    results = []
    for _ in range(2):
        nodes = [make(variant, n) for n in range(3)]
        rounds(nodes, 6)
        results.append([node.policy.start() for node in nodes])
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))


@every_policy
def test_unreasonable_settings_are_refused(variant: str) -> None:
    name, _ = VARIANTS[variant]
    origin = PolicySetup(to_units(genesis()), make(variant, 1).identity, LINEAGE, "main", "cd" * 32, {"bits": 7}, 1)
    with pytest.raises(ValueError, match="bits"):
        policy_named(name)(origin)


def test_a_run_that_asks_for_dense_entries_gets_them() -> None:
    """Nothing stays behind: others have what the author learned, up to the rounding of 8 bits."""
    identity = Identity(blake3(b"dense").digest())
    settings = {"density": 1.0, "bits": 8.0, "gamma": 1.0}
    policy = policy_named("deltaset")(
        PolicySetup(to_units(genesis()), identity, LINEAGE, "main", "cd" * 32, settings, 1)
    )
    node, begun = Node(identity, policy), policy.start()
    train(node, 3, peers=1)
    assert np.abs(policy.start() - begun - progress(3)).max() < 2e-3


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ValueError, match="sideways"):
        policy_named("sideways")
