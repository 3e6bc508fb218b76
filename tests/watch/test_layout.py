"""Places on a picture: everybody has one of their own, circles do not overlap and lie in their communities."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.watch.layout import MAX_GROUPS, lay_out
from p2pnode.wire.status import JobState, PeerState

names = st.sampled_from(["", "a", "b", "c"])
swarms = st.lists(st.tuples(names, names), min_size=1, max_size=60).map(
    lambda homes: [
        PeerState(f"p{number}", f"n{number}", "node", True, community=community, jobs={"main": JobState(circle)})
        for number, (circle, community) in enumerate(homes)
    ]
)


@given(swarms, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_nobody_lies_on_another_and_the_order_does_not_matter(peers, rng) -> None:
    layout = lay_out(peers)
    assert set(layout.peers) == {peer.id for peer in peers}
    assert all(abs(one - other) > 0.3 for one, other in combinations(layout.peers.values(), 2))
    assert all(abs(abs(layout.outwards(peer.id)) - 1) < 1e-6 for peer in peers)
    shuffled = list(peers)
    rng.shuffle(shuffled)
    assert lay_out(shuffled) == layout


@given(swarms)
@settings(max_examples=60, deadline=None)
def test_circles_hold_their_members_and_do_not_overlap(peers) -> None:
    layout = lay_out(peers)
    assert sorted(disc.name for disc in layout.circles) == sorted({peer.job().circle for peer in peers} - {""})
    for disc in layout.circles:
        members = [layout.peers[peer.id] for peer in peers if peer.job().circle == disc.name]
        assert all(abs(place - disc.centre) < disc.radius for place in members)
    for discs in (layout.circles, layout.communities):
        assert all(abs(a.centre - b.centre) >= a.radius + b.radius for a, b in combinations(discs, 2))


def test_communities_hold_their_circles_and_have_no_disc_where_circles_cross_them() -> None:
    def peer(number: int, circle: str, community: str) -> PeerState:
        return PeerState(f"p{number}", "", "node", True, community=community, jobs={"main": JobState(circle)})

    inside = lay_out([peer(number, f"c{number // 4}", f"m{number // 8}") for number in range(16)])
    assert [disc.name for disc in inside.communities] == ["m0", "m1"]
    for disc in inside.communities:
        within = [one for one in inside.circles if abs(one.centre - disc.centre) + one.radius <= disc.radius]
        assert len(within) == 2
    assert lay_out([peer(number, f"c{number // 4}", f"m{number % 2}") for number in range(16)]).communities == ()


def test_of_very_many_circles_the_largest_are_drawn_and_everybody_has_a_place() -> None:
    honest = [PeerState(f"h{n}", "", "node", True, jobs={"main": JobState(f"of eight {n % 3}")}) for n in range(24)]
    liars = [
        PeerState(f"l{n}", "", "node", True, jobs={"main": JobState(f"made up {n}")}) for n in range(3 * MAX_GROUPS)
    ]
    layout = lay_out([*honest, *liars])
    assert len(layout.peers) == len(honest) + len(liars)
    assert {f"of eight {n}" for n in range(3)} <= {disc.name for disc in layout.circles}
    assert len(layout.circles) <= MAX_GROUPS
