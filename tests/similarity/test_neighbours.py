"""Finding the most similar peers by gossip: bounded, never oneself, and close to the truth after a few rounds."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.similarity.fingerprint import Row, similarities, similarity
from p2pnode.similarity.neighbours import RECOMMENDED, Neighbour, Neighbours
from p2pnode.wire.ids import PeerId
from tests.known import known as present
from tests.similarity.views import peer, planted, scattered

NOW = 0.0


def everybody(view: dict[PeerId, Row], expiry: float = 100.0) -> list[Neighbour]:
    return [Neighbour(member, row, expiry) for member, row in view.items()]


def neighbours(view: dict[PeerId, Row], near: int = 6, far: int = 3) -> Neighbours:
    return Neighbours(peer(0), view[peer(0)], near, far)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 39), max_size=12)), max_size=12), st.integers(0, 9))
def test_the_table_is_bounded_without_oneself_and_keeps_the_nearest(heard, seed: int) -> None:
    view = scattered(40, seed)
    known, ever = neighbours(view), set()
    for random_sample, numbers in heard:
        some = [Neighbour(peer(number), view[peer(number)], 100.0) for number in numbers]
        (known.take_sample if random_sample else known.take_in)(some)
        ever |= {neighbour.peer for neighbour in some} - {peer(0)}
        assert len(known) <= 6 + 3
        assert peer(0) not in known
    best = sorted(ever, key=lambda member: (-similarity(view[peer(0)], view[member]), member))[:6]
    assert known.nearest(6) == best


def test_the_random_part_is_not_pushed_out_by_liars() -> None:
    view = scattered(200, 1)
    known = neighbours(view, near=6, far=3)
    honest = everybody(dict(list(view.items())[1:4]))
    known.take_sample(honest)
    for number in range(50):
        known.take_in([Neighbour(PeerId(f"liar-{number}-{n}"), view[peer(0)], 200.0) for n in range(RECOMMENDED)])
    assert all(neighbour.peer in known for neighbour in honest)
    rng = random.Random(1)
    asked = {known.partner_to_ask(rng) for _ in range(100)}
    assert asked & {neighbour.peer for neighbour in honest}


def test_a_node_names_the_nearest_to_the_other_that_it_lacks_and_would_keep() -> None:
    view = planted(3, 20)
    teller = neighbours(view, near=60, far=0)
    teller.take_in(everybody(view))
    other, row = peer(1), view[peer(1)]
    recommended = teller.recommend(other, row, frozenset())
    rest = [member for member in view if member not in (peer(0), other)]
    best = sorted(rest, key=lambda member: (-similarity(row, view[member]), member))[:RECOMMENDED]
    assert [neighbour.peer for neighbour in recommended] == best
    fewer = teller.recommend(other, row, {Neighbour(member, row, 1.0).mark for member in best[:5]})
    assert [neighbour.peer for neighbour in fewer][: RECOMMENDED - 5] == best[5:]
    floor = float(np.sort(similarities(row, np.stack([view[member] for member in best])))[-2])
    assert [neighbour.peer for neighbour in teller.recommend(other, row, frozenset(), floor)] == best[:2]


def test_newer_words_replace_older_ones_and_old_ones_run_out() -> None:
    view = scattered(3, 1)
    known = neighbours(view)
    first, second = peer(1), peer(2)
    changed = -view[first]
    known.take_in([Neighbour(first, view[first], 10.0), Neighbour(second, view[second], 50.0)])
    known.take_in([Neighbour(first, changed, 20.0)])
    known.take_in([Neighbour(first, view[first], 15.0)])
    assert np.array_equal(known.rows()[first], changed)
    assert known.marks(NOW, lasting=30.0) == {Neighbour(second, view[second], 1.0).mark}, (
        "what expires soon may be sent again"
    )
    known.expire(20.0)
    assert first not in known
    assert second in known


def test_whoever_is_asked_was_not_asked_lately() -> None:
    view = scattered(9, 2)
    known = neighbours(view, near=8, far=0)
    assert known.partner_to_ask(random.Random(1)) is None
    known.take_in(everybody(view))
    asked = [present(known.partner_to_ask(random.Random(turn))) for turn in range(8)]
    assert sorted(asked) == sorted(view)[1:]
    known.forget([asked[0]])
    assert known.partner_to_ask(random.Random(1)) == asked[1]


def test_a_newcomer_asks_more_than_who_has_been_here_for_long() -> None:
    view = scattered(9, 2)
    known, rng = neighbours(view), random.Random(1)
    known.take_in(everybody(view))
    asks = [known.asks_due()]
    while known.asks_due() == asks[0] and len(asks) < 100:
        asks += [known.asks_due() for _ in range(known.asks_due()) if known.partner_to_ask(rng)]
    assert known.asks_due() == 1 < asks[0]


def test_a_changed_model_changes_who_is_near() -> None:
    view = planted(2, 6)
    known = neighbours(view, near=12, far=0)
    known.take_in(everybody(view))
    assert all(int(member[-5:]) % 2 == 0 for member in known.nearest(5))
    known.moved(view[peer(1)])
    assert all(int(member[-5:]) % 2 == 1 for member in known.nearest(6))


def test_rounds_of_telling_find_the_nearest() -> None:
    """400 nodes that begin with five random ones each; a table holds a tenth of them."""
    view = planted(20, 20, noise=0.5)
    members, rng = list(view), random.Random(5)
    seen = dict(zip(members, everybody(view), strict=True))
    nodes = {member: Neighbours(member, view[member], 30, 10) for member in members}
    for node in nodes.values():
        node.take_sample([seen[other] for other in rng.sample(members, 5)])
    for _ in range(12):
        for member, node in nodes.items():
            other = present(node.partner_to_ask(rng))
            there = nodes[other]
            answer = there.recommend(member, view[member], node.marks(NOW, 1.0), node.floor())
            there.take_in([*node.recommend(other, view[other], there.marks(NOW, 1.0), there.floor()), seen[member]])
            node.take_in(answer)
    matrix = np.stack(list(view.values()))
    found = 0
    for member in members:
        alike = similarities(view[member], matrix)
        found += sum(members[place] in nodes[member] for place in np.argsort(-alike)[1:11])
    assert found >= 0.95 * 10 * len(members)
