"""Figures of a swarm and of its history, good enough for a paper. The same picture gives the same figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ...wire.status import ExchangeRow, PeerState
from ..aggregate import aggregate
from ..glossary import TRAINING
from ..graph import COLOURS, OTHERS, PeerGraph, colours_of, groups_of, headline, names_of
from ..layout import GraphLayout, lay_out
from ..text import circle_names, clean
from .drawing import (
    FAINT,
    INK,
    NAMES_UP_TO,
    SMALL,
    Drawing,
    canvas,
    legend_column,
    marks_of,
    plain_frame,
    scale_of,
    shade,
    time_unit,
)
from .groups import plot_groups

NAMED_CIRCLES = 24
LATELY = 30.0  # seconds
OVER: dict[str, Any] = {**SMALL, "ha": "center", "va": "center", "bbox": {"fc": "white", "ec": "none", "pad": 1.0}}
MAX_EDGES = 400
MOST_MEASURES = 4  # of a kind of work that trains nothing


def plot_graph(picture: PeerGraph) -> Figure:
    """Peers coloured by community around their circles; exchanges wider for more bytes, darker for more similarity.

    A large swarm is drawn in groups (figures.groups); where it has none, only its busiest pairs are drawn.
    """
    groups = aggregate(picture)
    if groups is not None:
        return plot_groups(picture, groups)
    layout = lay_out(picture.peers)
    known = [edge for edge in picture.exchanges if edge.one in layout.peers and edge.other in layout.peers]
    edges = sorted(known, key=lambda edge: -(edge.sent_bytes + edge.received_bytes))[:MAX_EDGES]
    fewer = f"lines: the {len(edges)} busiest pairs of {len(known):,}" if len(edges) < len(known) else ""
    figure, axes = canvas(layout.bounds(), headline(picture), fewer)
    names = groups_of(picture.peers)
    colours = colours_of(names)
    of_peers = {peer: colours.get(group, OTHERS) for peer, group in names.items()}
    _draw_discs(axes, layout, of_peers, circle_names(picture.peers))
    _draw_edges(axes, layout, edges)
    _draw_peers(axes, picture, layout, of_peers)
    silent = any(not peer.present for peer in picture.peers)
    scale = scale_of(edge.similarity for edge in edges)
    legend_column(figure, marks_of(names.values(), colours, silent), scale)
    return figure


def _draw_discs(axes: Axes, layout: GraphLayout, colours: Mapping[str, str], names: Mapping[str, str]) -> None:
    for disc in layout.communities:
        colour = colours.get(disc.name, OTHERS)  # that of the member it is called after
        place = (disc.centre.real, disc.centre.imag)
        axes.add_patch(Circle(place, disc.radius, facecolor=colour, alpha=0.09, linewidth=0, zorder=0))
    for disc in layout.circles:
        place = (disc.centre.real, disc.centre.imag)
        axes.add_patch(Circle(place, disc.radius, fill=False, edgecolor=FAINT, linestyle=(0, (3, 2)), zorder=0.5))
        if len(layout.circles) <= NAMED_CIRCLES:
            top = (place[0], place[1] + disc.radius)
            axes.annotate(clean(names[disc.name], 20), top, (0, 0), textcoords="offset points", **OVER)


def _draw_edges(axes: Axes, layout: GraphLayout, edges: Sequence[ExchangeRow]) -> None:
    """Draw the most similar pairs on top. Pairs that stopped exchanging are faint."""
    ranked = sorted(edges, key=lambda edge: -1.0 if edge.similarity is None else edge.similarity)
    latest = max((edge.last for edge in edges), default=0.0)
    strong = min(0.85, 0.25 + 40 / max(1, len(edges)))
    scale = scale_of(edge.similarity for edge in edges)
    ends = [(layout.peers[edge.one], layout.peers[edge.other]) for edge in ranked]
    lines = LineCollection(
        [[(a.real, a.imag), (b.real, b.imag)] for a, b in ends],
        colors=[
            to_rgba(shade(edge.similarity, scale), strong if latest - edge.last <= LATELY else strong / 5)
            for edge in ranked
        ],
        linewidths=[0.3 + 0.45 * np.log10(1 + (edge.sent_bytes + edge.received_bytes) / 1000) for edge in ranked],
        zorder=1,
    )
    axes.add_collection(lines)


def _draw_peers(axes: Axes, picture: PeerGraph, layout: GraphLayout, colours: Mapping[str, str]) -> None:
    peers, places = picture.peers, [layout.peers[peer.id] for peer in picture.peers]
    size = max(20.0, 900.0 / max(1, len(peers)) ** 0.75)
    axes.scatter(
        [place.real for place in places],
        [place.imag for place in places],
        s=[1.8 * size if peer.me else size for peer in peers],
        c=[colours[peer.id] if peer.present else "white" for peer in peers],
        edgecolors=[INK if peer.me else "white" if peer.present else colours[peer.id] for peer in peers],
        linewidths=0.8,
        zorder=2,
    )
    if len(peers) <= NAMES_UP_TO:
        names = names_of(picture)
        for peer, place in zip(peers, places, strict=True):
            _name(axes, names[peer.id], place, layout.outwards(peer.id), 4 + 0.5 * size**0.5)


def _name(axes: Axes, name: str, place: complex, outwards: complex, distance: float) -> None:
    """Write a name on the side away from the others, so that it does not lie on lines."""
    across = "left" if outwards.real > 0.3 else "right" if outwards.real < -0.3 else "center"
    up = "bottom" if outwards.imag > 0.8 else "top" if outwards.imag < -0.8 else "center"
    off = (distance * outwards.real, distance * outwards.imag)
    axes.annotate(name, (place.real, place.imag), off, textcoords="offset points", ha=across, va=up, **SMALL)


# ---- over time ----


class Measure(NamedTuple):
    """A figure of all peers at all moments."""

    label: str
    values: list[list[float | None]]
    log: bool = False


def _measures(pictures: Sequence[PeerGraph]) -> list[Measure]:
    """Accuracy and loss where models are trained; else the first numbers that the peers' kind of work reports."""

    def collected(label: str, value: Callable[[PeerState], float | None], log: bool = False) -> Measure:
        return Measure(label, [[value(peer) for peer in one.peers] for one in pictures], log)

    def percent(peer: PeerState) -> float | None:
        share = peer.training().accuracy
        return None if share is None else 100 * share

    accuracy = collected(f"{TRAINING['accuracy'].label} (%)", percent)
    loss = collected(TRAINING["loss"].label, lambda peer: peer.training().loss, log=True)
    trained = [one for one in (accuracy, loss) if any(value for row in one.values for value in row)]
    figures = {
        figure.name: figure
        for one in pictures
        for peer in one.peers
        for figure in peer.job().figures
        if isinstance(figure.value, int | float)
    }
    units = {name: f" ({clean(figure.unit, 20)})" if figure.unit else "" for name, figure in figures.items()}
    reported = [
        collected(f"{clean(figure.label or name)}{units[name]}", partial(_figure, name))
        for name, figure in list(figures.items())[:MOST_MEASURES]
    ]
    return trained or reported or [accuracy, loss]


def _figure(name: str, peer: PeerState) -> float | None:
    found = next((figure.value for figure in peer.job().figures if figure.name == name), None)
    return found if isinstance(found, int | float) and isfinite(found) else None


def plot_history(pictures: Sequence[PeerGraph]) -> Figure:
    """How the peers get on over time (the median, and where nine tenths of them lie); how many groups and peers."""
    grouped = any(peer.community or peer.job().circle for one in pictures for peer in one.peers)
    measures = _measures(pictures)
    heights = (*(3.0 for _ in measures), *((1.6,) if grouped else ()), 1.2)
    figure = Drawing(figsize=(7.0, 1.0 + 0.62 * sum(heights)), layout="constrained")
    panels = list(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0])
    begun, ended = (pictures[0].time, pictures[-1].time) if pictures else (0.0, 0.0)
    unit, words = time_unit(ended - begun)
    times = np.array([(one.time - begun) / unit for one in pictures])
    for panel, measure in zip(panels, measures, strict=False):
        _spread(panel, times, measure.values, measure.label)
        if measure.log:
            panel.set_yscale("log")
    if grouped:
        _groups(panels[-2], times, pictures)
    there = [sum(peer.present and peer.role == "node" for peer in one.peers) for one in pictures]
    panels[-1].plot(times, there, color=COLOURS[2])
    panels[-1].set_ylim(bottom=0)
    panels[-1].set_ylabel("peers")
    panels[-1].set_xlabel(words)
    for panel in panels:
        plain_frame(panel)
        panel.yaxis.label.set_size(9)
        panel.grid(alpha=0.25)
    figure.align_ylabels(panels)
    return figure


def _spread(axes: Axes, times: np.ndarray, values: list[list[float | None]], name: str) -> None:
    known = [[value for value in row if value is not None] for row in values]
    there = np.array([bool(row) for row in known], bool)
    axes.set_ylabel(name)
    if not there.any():
        return
    low, middle, high = np.array([np.percentile(row, (5, 50, 95)) for row in known if row]).T
    axes.fill_between(
        times[there], low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label="nine tenths of the peers"
    )
    axes.plot(times[there], middle, color=COLOURS[0], label="median")
    axes.legend(frameon=False, fontsize=7.5, loc="best")


def _groups(axes: Axes, times: np.ndarray, pictures: Sequence[PeerGraph]) -> None:
    """How many communities and circles there are."""
    kinds = {"communities": [{peer.community for peer in one.peers} - {""} for one in pictures]}
    kinds["circles"] = [{peer.job().circle for peer in one.peers} - {""} for one in pictures]
    for (name, found), colour, style in zip(kinds.items(), (COLOURS[4], COLOURS[1]), ("-", "--"), strict=True):
        if any(found):
            axes.plot(times, [len(groups) or np.nan for groups in found], style, color=colour, label=name)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("how many")
    axes.legend(frameon=False, fontsize=7.5, loc="best")
