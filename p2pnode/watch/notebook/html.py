"""A swarm as HTML for notebooks: a headline, a small drawing, a table.

Text that peers can set is escaped, nothing is fetched from anywhere, and there is no script in it.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

from ...jobs.train.plan import first_plan
from ...wire.ids import short
from ...wire.status import PeerState
from ..aggregate import Aggregate, Group, aggregate, busiest
from ..glossary import label
from ..graph import OTHERS, PeerGraph, colours_of, groups_of, headline
from ..layout import Disc, lay_out, ring_of
from ..text import circle_names, clean, figure_text

SHOWN = 12  # rows of the table
SIDE = 260  # of the drawing, in pixels
MAX_EDGES = 500
SIDE_BY_SIDE = "display:flex;gap:1.5em;align-items:flex-start;flex-wrap:wrap"


def swarm_html(pictures: Sequence[PeerGraph], state: str) -> str:
    """The latest picture, and how many there are."""
    if not pictures:
        return f"<div><b>{_text(state)}</b></div>"
    picture = pictures[-1]
    title = (
        f"<b>{_text(headline(picture))}</b>, {len(pictures)} moments seen<br>{_text(_run_text(picture))}{_text(state)}"
    )
    return f'<div>{title}<div style="{SIDE_BY_SIDE}">{_svg(picture)}{_table(picture)}</div></div>'


def _run_text(picture: PeerGraph) -> str:
    """What the run is and trains."""
    manifest = picture.manifest
    if manifest is None:
        return ""
    plan = first_plan(manifest)
    trains = "" if plan is None else f" trains {clean(plan.task)}, {plan.parameters:,} parameters, policy {plan.policy}"
    return f"run {clean(manifest.name)!r}{trains}; "


def _table(picture: PeerGraph) -> str:
    figures = _figures(picture.peers)
    labels = [*(label(name) for name in ("community", "circle")), *figures]
    head = "".join(["<th>peer</th>", *(f"<th>{_text(words)}</th>" for words in labels), "<th>present</th>"])
    colours, groups = _colours(picture), groups_of(picture.peers)
    named = groups if any(peer.community for peer in picture.peers) else {}
    circles = circle_names(picture.peers)
    rows = "".join(
        _row(peer, colours[peer.id], named.get(peer.id, ""), circles.get(peer.job().circle, ""), figures)
        for peer in picture.peers[:SHOWN]
    )
    more = len(picture.peers) - SHOWN
    rest = f"<tr><td colspan={4 + len(figures)}>… and {more} more: view.peers()</td></tr>" if more > 0 else ""
    return f"<table><tr>{head}</tr>{rows}{rest}</table>"


def _figures(peers: Sequence[PeerState]) -> dict[str, Callable[[PeerState], str]]:
    """The columns about the peers' work by label: of training, or of what their kind of work reports."""

    def reported(name: str) -> Callable[[PeerState], str]:
        def text(peer: PeerState) -> str:
            found = next((figure for figure in peer.job().figures if figure.name == name), None)
            return "" if found is None else figure_text(found.value, found.unit)

        return text

    figures = {figure.name: clean(figure.label or figure.name) for peer in peers for figure in peer.job().figures}
    trains = not figures or any(peer.job().train is not None for peer in peers)
    return (TRAINING if trains else {}) | {words: reported(name) for name, words in figures.items()}


def _known(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


TRAINING: dict[str, Callable[[PeerState], str]] = {
    label("round"): lambda peer: _known(peer.training().round, "d"),
    label("loss"): lambda peer: _known(peer.training().loss, ".4g"),
    label("accuracy"): lambda peer: _known(peer.training().accuracy, ".1%"),
}


def _row(
    peer: PeerState, colour: str, group: str, circle: str, figures: Mapping[str, Callable[[PeerState], str]]
) -> str:
    dot = f'<span style="color:{colour}">●</span> '
    cells = (
        group.removeprefix("community "),
        circle,
        *(text(peer) for text in figures.values()),
        "yes" if peer.present else "no",
    )
    name = clean(peer.name, 24) or short(peer.id)
    return f"<tr><td>{dot}{_text(name)}</td>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>"


def _svg(picture: PeerGraph) -> str:
    """Peers as dots, exchanges as lines, laid out as in figures; a large swarm as one mark for each of its groups."""
    groups = aggregate(picture)
    reach, shapes = _peer_shapes(picture) if groups is None else _group_shapes(picture, groups)
    if not shapes:
        return ""
    box = f"{-reach:.2f} {-reach:.2f} {2 * reach:.2f} {2 * reach:.2f}"
    about = f'role="img" aria-label="{_text(headline(picture))}"'
    return f'<svg width="{SIDE}" height="{SIDE}" viewBox="{box}" {about}>{"".join(shapes)}</svg>'


def _peer_shapes(picture: PeerGraph) -> tuple[float, list[str]]:
    """How far the drawing reaches from its middle, and its shapes."""
    layout, colours = lay_out(picture.peers), _colours(picture)
    reach = max((abs(place) for place in layout.peers.values()), default=0.0) + 1.0
    unit = 2 * reach / SIDE
    lines = [
        _line(layout.peers[edge.one], layout.peers[edge.other], unit)
        for edge in picture.exchanges[:MAX_EDGES]
        if edge.one in layout.peers and edge.other in layout.peers
    ]
    return reach, lines + [_dot(peer, layout.peers[peer.id], colours[peer.id], unit) for peer in picture.peers]


def _group_shapes(picture: PeerGraph, swarm: Aggregate) -> tuple[float, list[str]]:
    discs = ring_of({group.name: group.peers for group in swarm.groups})
    reach = max(abs(disc.centre) + disc.radius for disc in discs.values()) + 0.5
    colours, unit = colours_of(groups_of(picture.peers)), 2 * reach / SIDE
    lines = [_line(discs[link.one].centre, discs[link.other].centre, unit) for link in busiest(swarm.links)]
    return reach, lines + [_mark(group, discs[group.name], colours) for group in swarm.groups]


def _mark(group: Group, disc: Disc, colours: Mapping[str, str]) -> str:
    """A group in the colour of its largest community, with the number of its peers in it."""
    colour = colours.get(next(iter(group.shares)), OTHERS)
    x, y = disc.centre.real, -disc.centre.imag
    circle = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{disc.radius:.2f}" fill="{colour}"/>'
    style = f'font-size="{0.9 * disc.radius:.2f}" fill="white" text-anchor="middle" dominant-baseline="central"'
    number = f'<text x="{x:.2f}" y="{y:.2f}" {style}>{group.peers}</text>'
    return f"<g>{circle}{number}<title>{_text(clean(group.name))}</title></g>"


def _line(one: complex, other: complex, unit: float) -> str:
    ends = f'x1="{one.real:.2f}" y1="{-one.imag:.2f}" x2="{other.real:.2f}" y2="{-other.imag:.2f}"'
    return f'<line {ends} stroke="{OTHERS}" stroke-opacity="0.35" stroke-width="{0.8 * unit:.3f}"/>'


def _dot(peer: PeerState, place: complex, colour: str, unit: float) -> str:
    fill = colour if peer.present else "none"
    at = f'cx="{place.real:.2f}" cy="{-place.imag:.2f}" r="{max(0.3, 3.5 * unit):.3f}"'
    name = _text(clean(peer.name, 24))
    return f'<circle {at} fill="{fill}" stroke="{colour}" stroke-width="{unit:.3f}"><title>{name}</title></circle>'


def _colours(picture: PeerGraph) -> Mapping[str, str]:
    groups = groups_of(picture.peers)
    colours = colours_of(groups)
    return {peer: colours.get(group, OTHERS) for peer, group in groups.items()}


def _text(text: str) -> str:
    return html.escape(text)
