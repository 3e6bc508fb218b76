"""The figure of a large swarm: one mark for each circle or community on a ring, one line for all exchanges of two."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, PathPatch, Wedge
from matplotlib.path import Path

from ...wire.ids import short
from ..aggregate import Aggregate, Group, GroupLink, busiest
from ..graph import OTHERS, PeerGraph, colours_of, groups_of, headline, names_of
from ..layout import Disc, ring_of
from ..text import circle_names, clean
from .drawing import INK, SMALL, Colour, canvas, legend_column, marks_of, scale_of, shade

HOLE = 0.58  # of a mark's radius
ROOM = 0.3  # for names, of the ring's radius
BEND = 0.35  # how far lines keep from the middle of the ring: 1 is straight


def plot_groups(picture: PeerGraph, swarm: Aggregate) -> Figure:
    """Marks as large as their groups, with the number of peers in them and the colours of their communities."""
    discs = ring_of({group.name: group.peers for group in swarm.groups})
    reach = max(abs(disc.centre) + disc.radius for disc in discs.values())
    wide, high = (1 + ROOM) * reach, (1 + ROOM / 3) * reach
    links = busiest(swarm.links)
    few = f"the {len(links)} busiest of {len(swarm.links)}" if len(links) < len(swarm.links) else f"all {len(links)}"
    words = f"lines: exchanges between two {swarm.kind}, wider for more bytes; {few}"
    figure, axes = canvas((-wide, wide, -high, high), headline(picture), words)
    names = groups_of(picture.peers)
    colours = colours_of(names)
    scale = scale_of(link.similarity for link in links)
    most = max((link.size_bytes for link in links), default=0)
    called = circle_names(picture.peers) if swarm.kind == "circles" else _community_names(picture)
    for link in links:
        _draw_link(axes, link, discs, shade(link.similarity, scale), link.size_bytes / max(1, most))
    for group in swarm.groups:
        _draw_group(axes, group, discs[group.name], colours, called.get(group.name, clean(group.name, 12)))
    silent = any(group.silent for group in swarm.groups)
    legend_column(figure, marks_of(names.values(), colours, silent), scale)
    return figure


def _community_names(picture: PeerGraph) -> dict[str, str]:
    """Each community by the name of its first member."""
    names = names_of(picture)
    firsts = {peer.community for peer in picture.peers if peer.community}
    return {first: f"of {names.get(first, short(first))}" for first in firsts}


def _draw_link(axes: Axes, link: GroupLink, discs: Mapping[str, Disc], colour: Colour, share: float) -> None:
    """A curve inside the ring; `share` is its bytes relative to those of the busiest link."""
    one, other = discs[link.one].centre, discs[link.other].centre
    bend = BEND * (one + other) / 2
    points = [(at.real, at.imag) for at in (one, bend, other)]
    path = Path(points, [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    ink = to_rgba(colour, 0.25 + 0.6 * share)
    axes.add_patch(PathPatch(path, fill=False, edgecolor=ink, linewidth=0.4 + 3.0 * share, zorder=1 + share))


def _draw_group(axes: Axes, group: Group, disc: Disc, colours: Mapping[str, str], name: str) -> None:
    """A ring in the colours of the communities of its peers; the part that is silent is pale."""
    x, y = disc.centre.real, disc.centre.imag
    axes.add_patch(Circle((x, y), disc.radius * 1.06, facecolor="white", edgecolor="none", zorder=3))
    begin = 90.0
    for label, count in group.shares.items():
        end = begin + 360 * count / group.peers
        width = disc.radius * (1 - HOLE)
        colour = colours.get(label, OTHERS)
        axes.add_patch(Wedge((x, y), disc.radius, begin, end, width=width, facecolor=colour, linewidth=0, zorder=4))
        begin = end
    if group.silent:
        end = 90.0 + 360 * group.silent / group.peers
        style = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.6, "zorder": 5}
        axes.add_patch(Wedge((x, y), disc.radius, 90.0, end, width=disc.radius * (1 - HOLE), **style))
    if group.me:
        axes.add_patch(Circle((x, y), disc.radius * 1.12, fill=False, edgecolor=INK, linewidth=1.0, zorder=5))
    axes.text(x, y, f"{group.peers}", ha="center", va="center_baseline", fontsize=7, color=INK, zorder=5)
    away = disc.centre / abs(disc.centre) if abs(disc.centre) > 1e-9 else 1j
    spot = disc.centre + away * disc.radius * 1.25
    across = "left" if away.real > 0.06 else "right" if away.real < -0.06 else "center"
    up = "bottom" if away.imag > 0.9 else "top" if away.imag < -0.9 else "center"
    axes.text(spot.real, spot.imag, clean(name, 14), ha=across, va=up, zorder=5, **SMALL)
