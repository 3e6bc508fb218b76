"""Advice about circles: bounds kept, one acts for many, and the swarm comes to rest."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.circles.advice import (
    CROWD,
    FEWEST,
    FULL,
    HASTE_ROUNDS,
    MAX_CIRCLE,
    REST_ROUNDS,
    SETTLE_ROUNDS,
    SPLIT,
    TARGET,
    Advice,
    Declared,
    advise,
)
from p2pnode.similarity.communities import Dendrogram, grow
from p2pnode.wire.ids import PeerId
from p2pnode.wire.run import Aim
from tests.similarity.views import peer, planted, scattered

TREE = grow(planted(4, 16))
EVERYBODY = TREE.peers
aims = st.sampled_from(["shared", "own"])
declarations = st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=len(EVERYBODY)).map(
    lambda names: dict(zip(EVERYBODY, names, strict=False))
)


@given(declarations, aims, st.integers(0, 200), st.integers(0, 99))
@settings(max_examples=200)
def test_advice_keeps_the_bounds_and_says_why(circles: dict[PeerId, str], aim: Aim, rounds: int, seed: int) -> None:
    acting: dict[str, list[PeerId]] = {}
    for me in circles:
        declared = Declared(me, circles)
        advice = advise(declared, TREE, aim, rounds, random.Random(seed))
        size = {name: len(members) for name, members in declared.by_name().items()}
        assert advice.reason
        first = bool(declared.mine) and me == declared.by_name()[declared.mine][0]
        if advice.what == "join" or (advice.what == "split" and first):
            acting.setdefault(declared.mine, []).append(me)
        if advice.what in ("enter", "move", "join"):
            coming = size[declared.mine] if advice.what == "join" else 1
            assert advice.circle != declared.mine
            full = advice.what == "enter" and all(count >= MAX_CIRCLE for count in size.values())
            assert size[advice.circle] + coming <= MAX_CIRCLE or (full and size[advice.circle] == min(size.values()))
        if advice.what == "split":
            assert me == min(advice.members), "who signs is the smallest"
            assert all(circles[member] == declared.mine for member in advice.members)
            assert FEWEST <= len(advice.members) <= (size[declared.mine] + 1) // 2
            assert size[declared.mine] <= CROWD or len(advice.members) < SPLIT
        if advice.what in ("split", "join"):
            assert rounds >= SETTLE_ROUNDS
        if advice.what == "move":
            assert rounds >= REST_ROUNDS
            assert size[declared.mine] > FEWEST
    assert all(len(members) == 1 for members in acting.values()), "one acts for its circle"


@given(declarations, aims)
def test_no_two_circles_join_each_other(circles: dict[PeerId, str], aim: Aim) -> None:
    joins = {}
    for me in circles:
        advice = advise(Declared(me, circles), TREE, aim, 2 * SETTLE_ROUNDS, random.Random(0))
        if advice.what == "join":
            joins[circles[me]] = advice.circle
    for start in joins:
        seen = [start]
        while seen[-1] in joins:
            seen.append(joins[seen[-1]])
            assert seen[-1] not in seen[:-1]


@pytest.mark.parametrize("aim", ["own", "shared"])
def test_a_full_circle_splits_by_the_aim(aim: Aim) -> None:
    """Sixteen of two communities: the halves are the communities, or have half of each."""
    members = [peer(number) for number in range(64) if number % 4 < 2][:16]
    circles = dict.fromkeys(members, "a")
    leaving = [advise(Declared(me, circles), TREE, aim, SETTLE_ROUNDS, random.Random(1)).members for me in members]
    (half,) = [found for found in leaving if found]
    of_the_first = sum(int(member[-5:]) % 4 == 0 for member in half)
    assert of_the_first in ((0, 8) if aim == "own" else (4,))
    assert members[0] in half
    assert advise(Declared(members[0], circles), TREE, aim, SETTLE_ROUNDS - 1, random.Random(1)).what == "stay"


@pytest.mark.parametrize("aim", ["own", "shared"])
def test_a_crowd_goes_apart_in_one_go(aim: Aim) -> None:
    circles = dict.fromkeys(EVERYBODY, "a")
    halves = [advise(Declared(me, circles), TREE, aim, SETTLE_ROUNDS, random.Random(1)).members for me in EVERYBODY]
    leaving = [member for half in halves for member in half]
    assert len(leaving) == len(set(leaving)), "nobody is named twice"
    sizes = [len(half) for half in halves if half] + [len(EVERYBODY) - len(leaving)]
    assert sizes == [TARGET] * (len(EVERYBODY) // TARGET)


def test_a_circle_above_the_most_does_not_wait_as_long_as_others() -> None:
    for size, wait in ((SPLIT, SETTLE_ROUNDS), (MAX_CIRCLE, SETTLE_ROUNDS), (MAX_CIRCLE + 1, HASTE_ROUNDS), (60, 5)):
        circles = dict.fromkeys(EVERYBODY[:size], "a")
        first = Declared(EVERYBODY[0], circles)
        words = [advise(first, TREE, "shared", rounds, random.Random(1)).what for rounds in (wait - 1, wait)]
        assert words == ["stay", "split"], size


def test_where_the_first_of_a_circle_does_not_split_it_another_does_in_time() -> None:
    circles, rng = dict.fromkeys([peer(number) for number in range(16)], "a"), random.Random(1)
    second = Declared(peer(1), circles)
    words = [advise(second, TREE, "shared", SETTLE_ROUNDS, rng).what for _ in range(2000)]
    assert 1 <= words.count("split") <= 20


def test_newcomers_go_where_the_aim_wants_them() -> None:
    alike, unlike = [peer(4 * n) for n in range(1, 6)], [peer(4 * n + 1) for n in range(5)]
    circles = {**dict.fromkeys(alike, "alike"), **dict.fromkeys(unlike, "unlike")}
    assert advise(Declared(peer(0), circles), TREE, "own", 0, random.Random(1)).circle == "alike"
    assert advise(Declared(peer(0), circles), TREE, "shared", 0, random.Random(1)).circle == "unlike"
    assert advise(Declared(peer(0), {}), TREE, "own", 0, random.Random(1)).what == "found"
    assert "5 members, most similar" in advise(Declared(peer(0), circles), TREE, "own", 0, random.Random(1)).reason


@pytest.mark.parametrize("aim", ["own", "shared"])
def test_a_newcomer_without_a_fingerprint_goes_where_the_fewest_are_at_random_among_equals_and_says_so(
    aim: Aim,
) -> None:
    circles = {peer(number): f"{number % 4}" for number in range(27)}  # 7 in each but the last, 6 there
    found = advise(Declared(PeerId("unknown"), circles), TREE, aim, 0, random.Random(1))
    assert (found.what, found.circle, found.reason) == ("enter", "3", "6 members, the fewest of all")
    del circles[peer(26)]
    entered = {advise(Declared(PeerId("?"), circles), TREE, aim, 0, random.Random(seed)).circle for seed in range(40)}
    assert entered == {"2", "3"}
    apart = grow({**planted(4, 16), PeerId("?"): -planted(1, 1)[peer(0)]})
    heights = {apart.height(PeerId("?"), member) for member in circles}
    assert len(heights) == 1, "as far from everybody"
    found = advise(Declared(PeerId("?"), circles), apart, aim, 0, random.Random(1))
    assert found.reason == "6 members, the fewest of all"


@pytest.mark.parametrize("aim", ["own", "shared"])
def test_who_fits_another_circle_clearly_better_moves_after_a_rest_one_at_a_time_and_does_not_move_back(
    aim: Aim,
) -> None:
    """Of two kinds of data each circle has one, but for this node; with aim `shared` it is one of too many alike."""
    me, lots = peer(0), [random.Random(seed) for seed in range(60)]
    alike, unlike = [peer(4 * n) for n in range(1, 7)], [peer(4 * n + 1) for n in range(6)]
    wrong, right = (unlike, alike) if aim == "own" else (alike, unlike)
    circles = {me: "wrong", **dict.fromkeys(wrong, "wrong"), **dict.fromkeys(right, "right")}

    def advised(rounds: int) -> list[Advice]:
        return [advise(Declared(me, circles), TREE, aim, rounds, rng) for rng in lots]

    assert {advice.what for advice in advised(REST_ROUNDS - 1)} == {"stay"}
    rested = advised(REST_ROUNDS)
    moves = [advice for advice in rested if advice.what == "move"]
    assert {advice.circle for advice in moves} == {"right"}
    assert 1 <= len(moves) <= len(rested) / 3, "one of seven, at random"
    circles |= {PeerId(f"stranger {number}"): "unknown" for number in range(6)}
    circles[me] = "right"
    assert {advice.what for advice in advised(10 * REST_ROUNDS)} == {"stay"}
    for member in right:
        circles[member] = "too full to be entered"
    circles[me] = "wrong"
    circles |= {PeerId(f"more {number}"): "too full to be entered" for number in range(FULL)}
    assert {advice.what for advice in advised(REST_ROUNDS)} == {"stay"}, "nobody moves to what nothing is known of"


def follow(circles: dict[PeerId, str], me: PeerId, advice: Advice, number: int) -> bool:
    """Do what is advised; True when somebody changed circles."""
    if advice.what == "found":
        circles[me] = f"founded-{number}"
    elif advice.what in ("enter", "move"):
        circles[me] = advice.circle
    elif advice.what == "split":
        circles.update(dict.fromkeys(advice.members, f"split-{number}"))
    elif advice.what == "join":
        own = circles[me]
        circles.update({member: advice.circle for member in circles if circles[member] == own})
    return advice.what != "stay"


def lives(tree: Dendrogram, aim: Aim, seed: int, turns: int) -> tuple[dict[PeerId, str], list[int]]:
    """Everybody arrives one by one and follows the advice; the circles at the end, and the changes in each turn."""
    rng = random.Random(seed)
    circles: dict[PeerId, str] = {}
    since = dict.fromkeys(tree.peers, 0)
    changes = []
    for turn in range(turns):
        changed = 0
        for me in rng.sample(tree.peers, len(tree.peers)):
            circles.setdefault(me, "")
            since[me] += 10
            before = dict(circles)
            if follow(circles, me, advise(Declared(me, circles), tree, aim, since[me], rng), turn * 1000 + changed):
                changed += 1
            since.update({member: 0 for member in circles if circles[member] != before.get(member, "")})
        changes.append(changed)
    return circles, changes


@pytest.mark.parametrize("aim", ["own", "shared"])
def test_a_full_circle_is_entered_only_where_all_are_full_however_well_it_fits(aim: Aim) -> None:
    rows = planted(2, 1)
    like, unlike = rows[peer(0)], rows[peer(1)]
    circles = {PeerId(f"{circle} {place}"): f"{circle}" for circle in range(3) for place in range(MAX_CIRCLE)}
    fitting = like if aim == "own" else unlike
    view = {member: unlike if fitting is like else like for member in circles if circles[member] == "1"}
    tree = grow({PeerId("me"): like, **dict.fromkeys(circles, fitting), **view})
    me, rng = Declared(PeerId("me"), circles), random.Random(1)
    entered = advise(me, tree, aim, 0, rng)
    assert (entered.what, entered.reason) == ("enter", f"{MAX_CIRCLE} members, the fewest of all")
    del circles[PeerId("1 0")]
    assert advise(me, tree, aim, 0, rng).circle == "1", "a single place that is left is found"
    del circles[PeerId("2 0")]
    assert advise(me, tree, aim, 0, rng).circle == "2", "of two the one that fits"


@pytest.mark.parametrize("aim", ["own", "shared"])
@pytest.mark.parametrize("count", [MAX_CIRCLE + 1, CROWD, 64])
def test_a_crowd_that_begins_in_one_circle_is_in_small_ones_after_one_change(count: int, aim: Aim) -> None:
    circles = dict.fromkeys(EVERYBODY[:count], "a")
    advice = {me: advise(Declared(me, circles), TREE, aim, HASTE_ROUNDS, random.Random(1)) for me in circles}
    for number, (me, found) in enumerate(advice.items()):
        follow(circles, me, found, number)
    assert max(map(len, Declared(peer(0), circles).by_name().values())) <= MAX_CIRCLE


@pytest.mark.parametrize("aim", ["own", "shared"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_swarm_finds_its_circles_and_rests(aim: Aim, seed: int) -> None:
    circles, changes = lives(TREE, aim, seed, turns=60)
    sizes = [len(members) for members in Declared(peer(0), circles).by_name().values()]
    assert all(FEWEST <= size < SPLIT for size in sizes), sizes
    assert 0.75 * TARGET <= sum(sizes) / len(sizes) <= 1.25 * TARGET
    assert sum(changes[-20:]) <= 0.01 * 20 * len(circles), "calm"
    kinds = [len({int(m[-5:]) % 4 for m in members}) for members in Declared(peer(0), circles).by_name().values()]
    assert (max(kinds) <= 2) if aim == "own" else (min(kinds) >= 3)


def test_a_swarm_without_communities_rests_too() -> None:
    _, changes = lives(grow(scattered(40, 1)), "own", 1, turns=40)
    assert sum(changes[-10:]) == 0
