"""Large swarms are drawn in groups: one mark with a number for each circle or community, one line for two of them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from p2pnode.watch.aggregate import AGGREGATE_ABOVE, BUSIEST, MAX_GROUPS, REST, aggregate, busiest
from p2pnode.watch.figures.graph import MAX_EDGES
from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.layout import ring_of
from p2pnode.watch.view import SwarmView
from p2pnode.wire.status import ExchangeRow, JobState, PeerState
from tests.known import known

MANY = 240


def peer(number: int, circle: str = "", community: str = "") -> PeerState:
    return PeerState(f"p{number}", f"n{number}", "node", True, community=community, jobs={"main": JobState(circle)})


def swarm(peers: list[PeerState], pairs: int = 3000) -> PeerGraph:
    rng = random.Random(1)
    drawn = sorted({tuple(sorted(rng.sample(range(len(peers)), 2))) for _ in range(pairs)})
    edges = [ExchangeRow(f"p{a}", f"p{b}", 1.0, 1, 1000 + a, 500, similarity=0.5 + a / 1000) for a, b in drawn]
    return PeerGraph(1.0, "", "run", "connected", "", tuple(peers), tuple(edges))


def in_circles(count: int = 30) -> PeerGraph:
    return swarm([peer(number, f"c{number % count}", f"m{number % 3}") for number in range(MANY)])


def test_circles_become_groups_and_all_exchanges_of_two_circles_one_link() -> None:
    picture = in_circles()
    found = known(aggregate(picture))
    assert found.kind == "circles"
    assert {group.name: group.peers for group in found.groups} == {f"c{number}": 8 for number in range(30)}
    between = [edge for edge in picture.exchanges if (int(edge.one[1:]) - int(edge.other[1:])) % 30]
    assert sum(link.pairs for link in found.links) == len(between)
    assert sum(link.size_bytes for link in found.links) == sum(edge.sent_bytes + 500 for edge in between)
    assert len({(link.one, link.other) for link in found.links}) == len(found.links) <= 30 * 29 / 2


def test_where_there_are_no_circles_communities_are_the_groups() -> None:
    found = known(aggregate(swarm([peer(number, "", f"m{number % 5}") for number in range(MANY)])))
    assert found.kind == "communities"
    assert len(found.groups) == 5


def test_small_swarms_and_those_without_groups_are_drawn_peer_by_peer() -> None:
    assert aggregate(swarm([peer(number, f"c{number % 3}") for number in range(AGGREGATE_ABOVE)])) is None
    assert aggregate(swarm([peer(number, "one") for number in range(MANY)])) is None
    assert aggregate(swarm([peer(number, f"c{number}") for number in range(MANY)])) is None
    picture = swarm([peer(number) for number in range(MANY)])
    figure = SwarmView(lambda: [picture]).plot()
    assert len(figure.axes[0].collections[0].get_paths()) == MAX_EDGES
    assert figure.texts[1].get_text() == f"lines: the {MAX_EDGES} busiest pairs of {len(picture.exchanges):,}"


def test_many_small_groups_are_one_more() -> None:
    names = [f"c{number}" for number in range(MAX_GROUPS + 20) for _ in range(3 if number < MAX_GROUPS else 2)]
    found = known(aggregate(swarm([peer(number, name) for number, name in enumerate(names)])))
    assert len(found.groups) == MAX_GROUPS + 1
    assert (found.groups[-1].name, found.groups[-1].peers) == (REST, 40)


def test_every_group_keeps_its_busiest_links_and_there_are_few() -> None:
    links = known(aggregate(in_circles())).links
    kept = busiest(links)
    assert [link.size_bytes for link in kept] == sorted(link.size_bytes for link in kept)
    for name in {link.one for link in links} | {link.other for link in links}:
        mine = sorted((link for link in links if name in (link.one, link.other)), key=lambda link: -link.size_bytes)
        assert set(mine[:BUSIEST]) <= set(kept)
    assert len(kept) <= BUSIEST * 30


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_marks_on_the_ring_do_not_overlap(sizes: list[int]) -> None:
    discs = list(ring_of({f"g{number}": size for number, size in enumerate(sizes)}).values())
    for place, one in enumerate(discs):
        for other in discs[place + 1 :]:
            assert abs(one.centre - other.centre) > 0.98 * (one.radius + other.radius)


def test_the_figure_has_a_number_and_a_name_for_each_group() -> None:
    picture = in_circles()
    silent = tuple(replace(one, present=int(one.id[1:]) % 30 != 7) for one in picture.peers)
    figure = SwarmView(lambda: [replace(picture, peers=silent)]).plot()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("8") == 30
    assert set(texts) - {"8"} == {f"c{number}" for number in range(30)}
    assert len(figure.axes[0].patches) < 30 * 4 + BUSIEST * 30, "marks and few lines"
    assert "silent" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_notebooks_get_vectors_and_the_same_ones_each_time() -> None:
    view = SwarmView(lambda: [in_circles()])
    figure: Any = view.plot()
    drawn = figure._repr_svg_()
    assert drawn.startswith("<?xml")
    assert ">c17</text>" in drawn, "text stays text"
    assert len(drawn) < 300_000
    again: Any = view.plot()
    assert drawn == again._repr_svg_()
    assert not hasattr(figure, "_repr_png_")


def test_the_small_drawing_has_groups_too() -> None:
    shown = SwarmView(lambda: [in_circles()])._repr_html_()
    assert shown.count(">8</text>") == 30
    assert shown.count("<line ") <= BUSIEST * 30


def test_a_swarm_and_its_rows_say_what_they_are() -> None:
    view = SwarmView(lambda: [in_circles()])
    assert repr(view).startswith("<Swarm: 240 nodes, 3 communities, 30 circles, ")
    assert repr(view).endswith(" pairs that exchanged; 1 moment seen; recorded>")
    assert repr(SwarmView(list)) == "<Swarm: recorded>"
    rows = view.communities()
    assert repr(rows) == "<3 rows: community, peers, round, loss, accuracy, circles>"
    assert rows.frame()["peers"].tolist() == [80, 80, 80]
    assert repr(view.shards()) == "<0 rows>"
    assert view.peers()._repr_html_().count("<tr>") == 12, "head, ten rows and how many more"
    assert "… and 230 more" in view.peers()._repr_html_()


def test_what_a_peer_can_set_is_no_markup_in_rows() -> None:
    rows = SwarmView(lambda: [swarm([replace(peer(0), name="<b>\x1b[2J</b>")], 0)]).peers()
    assert "<b>" not in rows._repr_html_()
    assert "\x1b" not in rows._repr_html_()
