"""Partners: every choice has a reason and may be made; nobody is out of reach forever."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.similarity.communities import grow
from p2pnode.similarity.partners import RANGES, Candidate, Home, PartnerSettings, choose_partners
from p2pnode.wire.ids import PeerId
from tests.known import known
from tests.similarity.views import as_row, peer, planted

VIEW = planted(3, 8)
COMMUNITIES = grow(VIEW).cut(0.3)
ME = peer(0)
CIRCLE = frozenset(peer(3 * number) for number in range(1, 8))
candidates = st.builds(
    Candidate,
    st.integers(0, 40).map(peer),
    met=st.none() | st.integers(0, 1000),
    latency=st.none() | st.floats(0, 1e9),
    rate=st.none() | st.floats(0, 1e15),
    faults=st.integers(0, 10**6),
    worth=st.floats(0.02, 1.0),
    similarity=st.none() | st.floats(0, 1),
    stale=st.booleans(),
    banned=st.booleans(),
)
tables = st.lists(candidates, max_size=30, unique_by=lambda each: each.peer)
all_settings = st.builds(PartnerSettings, **{name: st.floats(*bounds) for name, bounds in RANGES.items()})


@given(
    tables,
    st.frozensets(st.integers(0, 40).map(peer)),
    st.floats(0, 1),
    st.integers(0, 1000),
    st.integers(0, 99),
    all_settings,
)
@settings(max_examples=300)
def test_laws_of_choice(table, circle, rate, now, seed, how) -> None:
    home = Home(ME, circle - {ME}, rate)
    choices = choose_partners(table, COMMUNITIES, now, random.Random(seed), home, how)
    known = {each.peer: each for each in table}
    assert len(choices) <= 3
    assert len({choice.peer for choice in choices}) == len(choices)
    for choice in choices:
        assert choice.reason
        assert choice.peer != ME
        assert not known[choice.peer].stale
        assert not known[choice.peer].banned
        assert choice.bridge == (choice.peer not in home.members)
    able = [each for each in table if each.peer != ME and not each.stale and not each.banned]
    assert bool(choices) == bool(able), "whoever has somebody chooses somebody"
    inside = sum(each.peer in home.members for each in able)
    assert len(choices) == 3 or sum(not choice.bridge for choice in choices) == inside, "a bridge replaces one of three"
    again = choose_partners(list(reversed(table)), COMMUNITIES, now, random.Random(seed), home, how)
    assert again == choices, "the order of the table does not matter"


def everybody(**more) -> list[Candidate]:
    return [Candidate(member, met=90, latency=0.05, **more) for member in VIEW]


def counts(table: list[Candidate], bridge_rate: float, rounds: int = 3000, **how: Any) -> Counter[PeerId]:
    rng, home = random.Random(7), Home(ME, CIRCLE, bridge_rate)
    settings_ = PartnerSettings(**how)
    chosen = (choose_partners(table, COMMUNITIES, 100, rng, home, settings_) for _ in range(rounds))
    return Counter(choice.peer for choices in chosen for choice in choices)


def test_mostly_inside_at_times_outside_and_more_so_later() -> None:
    for rate in (0.05, 0.5):
        found = counts(everybody(), rate)
        outside = sum(number for member, number in found.items() if member not in CIRCLE) / 3000
        random_share = 0.15 * 16 / 22  # of the explorers, whoever falls outside
        assert abs(outside - rate - random_share) < 0.05
        assert set(found) == set(VIEW) - {ME}, "nobody is out of reach"


def test_lower_joins_meet_more_often() -> None:
    """A second community lies half way to the third."""
    rng, apart = np.random.default_rng(1), np.random.default_rng(2).normal(size=(2, 256))
    view = {}
    for number, member in enumerate(VIEW):
        side = (apart[0], apart[0] + 0.8 * apart[1], -apart[0])[number % 3]
        view[member] = as_row(1 + side + 0.2 * rng.normal(size=256))
    tree = grow(view)
    met: Counter[int] = Counter()
    choices, home = random.Random(3), Home(ME, CIRCLE, 1.0)
    for _ in range(2000):
        for choice in choose_partners(everybody(), tree.cut(0.3), 100, choices, home, PartnerSettings(explore=0)):
            met[int(choice.peer[-5:]) % 3] += 1
    assert known(tree.height(ME, peer(1))) < 0.8 * known(tree.height(ME, peer(2)))
    assert met[1] > 1.2 * met[2] > 0


def test_a_crowd_of_liars_does_not_keep_a_node() -> None:
    """All of the circle lies; still a share of rounds meets somebody else."""
    honest = set(VIEW) - CIRCLE - {ME}
    found = counts(everybody(), bridge_rate=0.0)
    assert sum(found[member] for member in honest) >= 0.08 * 3000


def shares_of_the_honest(liars: int, honest: int, circle: frozenset[PeerId], rounds: int) -> list[float]:
    """How many of the choices are honest peers, in the first and in the second half of the rounds.

    Liars look just like this node, answer at once and never fail; honest ones are unlike it and far away.
    """
    rng, mine = np.random.default_rng(5), np.random.default_rng(6).normal(size=256)
    view = {ME: as_row(mine), **{peer(1 + n): as_row(mine + 0.01 * rng.normal(size=256)) for n in range(liars)}}
    view |= {peer(100 + n): as_row(rng.normal(size=256)) for n in range(honest)}
    met: dict[PeerId, int] = {}
    halves = [0, 0]
    choices, settings_, communities = random.Random(8), PartnerSettings(similarity=5.0), grow(view).cut(0.2)
    for now in range(rounds):
        table = [
            Candidate(each, met.get(each), *((0.2, 1e4, 3, 0.1) if each >= peer(100) else (0.0, 1e9, 0, 1.0)))
            for each in view
        ]
        for choice in choose_partners(table, communities, now, choices, Home(ME, circle, 0.0), settings_):
            met[choice.peer] = now
            halves[2 * now // rounds] += choice.peer >= peer(100)
    return [2 * half / rounds for half in halves]


def test_fifty_lying_fingerprints_do_not_keep_a_node_for_ever() -> None:
    """Neither where it is alone in its circle nor where the circle is theirs; and late as often as early."""
    for circle in (frozenset[PeerId](), frozenset(peer(1 + n) for n in range(8))):
        for share in shares_of_the_honest(50, 10, circle, 1200):
            assert share >= 0.5 * PartnerSettings().explore * 10 / 60


@given(tables, st.frozensets(st.integers(0, 40).map(peer)), st.integers(0, 1000), all_settings)
def test_nobody_able_is_out_of_reach(table, circle, now, how) -> None:
    """What is explored is drawn from all with equal chances, whatever is said of them."""
    able = sorted(each.peer for each in table if each.peer != ME and not each.stale and not each.banned)
    exploring = replace(how, explore=1.0, partners=1)
    for place, each in enumerate(able):
        home = Home(ME, circle - {ME}, 0.0)
        chosen = choose_partners(table, COMMUNITIES, now, Loaded(place, len(able)), home, exploring)
        assert [choice.peer for choice in chosen] == [each]


class Loaded(random.Random):
    """A random number generator that always draws the same place."""

    def __init__(self, place: int, count: int) -> None:
        super().__init__()
        self._value = (place + 0.5) / count

    def random(self) -> float:
        return self._value


def test_what_counts() -> None:
    first, second = sorted(CIRCLE)[:2]
    for better, worse in (
        ({"met": 10}, {"met": 99}),
        ({"latency": 0.001}, {"latency": 2.0}),
        ({"rate": 1e7}, {"rate": 1e3}),
        ({"faults": 0}, {"faults": 9}),
        ({"worth": 1.0}, {"worth": 0.1}),
    ):
        table = [
            replace(each, **(better if each.peer == first else worse if each.peer == second else {}))
            for each in everybody()
        ]
        found = counts(table, 0.05)
        assert found[first] > 1.2 * found[second], better


def test_a_liking_for_similar_or_dissimilar_ones() -> None:
    first, second = sorted(CIRCLE)[:2]
    table = [replace(each, similarity=0.99 if each.peer == first else 0.3) for each in everybody()]
    assert counts(table, 0.05, similarity=2.0)[first] > 1.2 * counts(table, 0.05, similarity=2.0)[second]
    assert counts(table, 0.05, similarity=-2.0)[first] < 0.8 * counts(table, 0.05, similarity=-2.0)[second]


def reasons(table: list[Candidate], rate: float, seed: int = 1) -> set[str]:
    rng, home = random.Random(seed), Home(ME, CIRCLE, rate)
    return {choice.reason for _ in range(200) for choice in choose_partners(table, COMMUNITIES, 100, rng, home)}


def test_reasons_are_for_people() -> None:
    words = " · ".join(sorted(reasons(everybody(), 0.5)))
    assert "bridge to another community" in words
    assert "by chance" in words
    assert "answers in 50 ms" in words
    assert "no exchange for 60 rounds" in reasons([replace(each, met=40) for each in everybody()], 0.0)
    assert "in the circle, no exchange yet" in reasons([Candidate(member) for member in VIEW], 0.0)
    assert "bridge to a peer of unknown community" in reasons([Candidate(PeerId("stranger"))], 1.0)
