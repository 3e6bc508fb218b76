"""Figures of a swarm, with matplotlib: good enough for a paper, the same picture every time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..ids import short
from .graph import PeerGraph, PeerView
from .text import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2f6fed", "#e0762b", "#1f9d68", "#c2408f", "#7b61ff", "#b08900", "#0d9bb5", "#d1495b", "#6b8e23", "#8d6e63")
NAMES_UP_TO = 40
SHOWN_GROUPS = 12


class Drawing(Figure):
    """A figure that notebooks show by itself, without pyplot and whatever backend it chose."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, dpi=110)
        return buffer.getvalue()


def group_of(peer: PeerView) -> str:
    """Its community where it is known, else its circle."""
    return f"community {short(peer.community)}" if peer.community else peer.circle


def plot_graph(picture: PeerGraph) -> Figure:
    """Peers coloured by group, exchanges between them; wider where more bytes went."""
    figure = Drawing(figsize=(7.0, 5.5), layout="constrained")
    axes = figure.add_subplot()
    places = ring_layout(picture.peers)
    edges = [edge for edge in picture.exchanges if edge.one in places and edge.other in places]
    for edge in edges:
        (x0, y0), (x1, y1) = places[edge.one], places[edge.other]
        width = 0.4 + 0.5 * np.log10(1 + (edge.sent_bytes + edge.received_bytes) / 1000)
        axes.plot([x0, x1], [y0, y1], color="#9aa5b4", linewidth=width, alpha=0.6, zorder=1)
    groups = sorted({group_of(peer) for peer in picture.peers})
    for peer in picture.peers:
        _draw_peer(axes, peer, places[peer.id], COLOURS[groups.index(group_of(peer)) % len(COLOURS)], len(places))
    handles = [
        Line2D([], [], marker="o", linestyle="", color=COLOURS[at % len(COLOURS)], label=group)
        for at, group in enumerate(groups[:SHOWN_GROUPS])
        if group
    ]
    if handles:
        axes.legend(handles=handles, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.margins(0.12)
    present = sum(peer.present for peer in picture.peers)
    axes.set_title(f"{present} peers, {len(edges)} pairs exchanging", fontsize=11)
    return figure


def ring_layout(peers: Sequence[PeerView]) -> dict[str, tuple[float, float]]:
    """Groups around a ring, the members of each around a smaller one; the same places for the same peers."""
    groups: dict[str, list[str]] = {}
    for peer in sorted(peers, key=lambda peer: (group_of(peer), peer.name, peer.id)):
        groups.setdefault(group_of(peer), []).append(peer.id)
    small = max(len(members) for members in groups.values()) if groups else 1
    reach = 0.0 if len(groups) < 2 else 0.38 * small / np.sin(np.pi / max(3, len(groups)))
    places = {}
    for at, members in enumerate(groups.values()):
        centre = reach * np.exp(2j * np.pi * at / len(groups))
        for place, peer_id in enumerate(members):
            point = centre + 0.25 * len(members) * np.exp(2j * np.pi * place / len(members)) * (len(members) > 1)
            places[peer_id] = (float(point.real), float(point.imag))
    return places


def _draw_peer(axes: Axes, peer: PeerView, place: tuple[float, float], colour: str, count: int) -> None:
    face = colour if peer.present else "white"
    size = max(12.0, 900.0 / count**0.7) * (1.8 if peer.me else 1.0)
    axes.scatter(place[0], place[1], s=size, c=face, edgecolors=colour, linewidths=1.2, zorder=2)
    if count <= NAMES_UP_TO:
        axes.annotate(clean(peer.name, 20), place, xytext=(0, -12), textcoords="offset points", ha="center", fontsize=7)


def plot_history(pictures: Sequence[PeerGraph]) -> Figure:
    """Loss and accuracy over time: the median, and between which values nine tenths of the peers lie."""
    figure = Drawing(figsize=(7.0, 5.5), layout="constrained")
    upper, lower, count = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 1.2))
    begun = pictures[0].time if pictures else 0.0
    times = np.array([one.time - begun for one in pictures])
    _spread(upper, times, [[peer.accuracy for peer in one.peers] for one in pictures], "accuracy")
    _spread(lower, times, [[peer.loss for peer in one.peers] for one in pictures], "training loss")
    count.plot(times, [sum(peer.present for peer in one.peers) for one in pictures], color=COLOURS[2])
    count.set_ylabel("peers")
    count.set_xlabel("seconds")
    return figure


def _spread(axes: Axes, times: np.ndarray, values: list[list[float | None]], name: str) -> None:
    known = [[value for value in row if value is not None] for row in values]
    there = np.array([bool(row) for row in known])
    axes.set_ylabel(name)
    if not there.any():
        return
    low, middle, high = np.array([np.percentile(row, (5, 50, 95)) for row in known if row]).T
    axes.fill_between(times[there], low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(times[there], middle, color=COLOURS[0])
    axes.grid(alpha=0.25)
