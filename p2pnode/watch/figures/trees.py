"""Figures of how similar the models are: the matrix in the order of the dendrogram, and the dendrogram with its cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...similarity.communities import Communities
from ..graph import COLOURS, OTHERS, PeerGraph, names_of
from ..similarity import communities_of, similarity_of
from .drawing import INK, NAMES_UP_TO, SIMILARITY, Drawing, plain_frame, write_instead

TOO_FEW = "the models of two peers are needed,\nand their nodes have not announced them yet"


def plot_similarity(picture: PeerGraph) -> Figure:
    """A heat map of all pairs in the order of the dendrogram; a frame around each community."""
    figure = Drawing(figsize=(6.6, 5.6), layout="constrained")
    axes = figure.add_subplot()
    communities, found = communities_of(picture), similarity_of(picture)
    if len(found.peers) < 2:
        write_instead(axes, TOO_FEW)
        return figure
    leaves = communities.dendrogram.leaves
    place = {peer: number for number, peer in enumerate(found.peers)}
    order = [place[peer] for peer in leaves]
    table = found.table[np.ix_(order, order)]
    image = axes.imshow(table, cmap=SIMILARITY, vmin=float(table.min()), vmax=1.0, interpolation="nearest")
    homes = [communities.of[peer] for peer in leaves]
    bounds = [0, *(at for at in range(1, len(homes)) if homes[at] != homes[at - 1]), len(homes)]
    for first, last in pairwise(bounds):
        if last - first > 1:
            square = (first - 0.5, first - 0.5), last - first, last - first
            axes.add_patch(Rectangle(*square, fill=False, edgecolor=COLOURS[1], linewidth=1.1, clip_on=False))
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("similarity", fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    _label(axes, [names_of(picture).get(peer, "") for peer in leaves])
    axes.set_title(_title(communities), fontsize=11, color=INK)
    return figure


def plot_dendrogram(picture: PeerGraph) -> Figure:
    """How the models join, the most similar first; branches below the cut are the communities."""
    figure = Drawing(figsize=(7.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    communities = communities_of(picture)
    tree = communities.dendrogram
    if len(tree.peers) < 2:
        write_instead(axes, TOO_FEW)
        return figure
    _draw_tree(axes, communities)
    if np.isfinite(communities.height):
        axes.axhline(communities.height, color=INK, linestyle=(0, (4, 3)), linewidth=0.9)
        corner = (1.0, communities.height)
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate("cut", corner, (2, 0), va="center", fontsize=8, color=INK, annotation_clip=False, **place)
    axes.set_ylabel("1 − similarity", fontsize=9)
    axes.set_xlim(-0.6, len(tree.peers) - 0.4)
    axes.set_ylim(0, 1.06 * tree.top or 1.0)
    plain_frame(axes)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    if len(tree.leaves) <= NAMES_UP_TO:
        names = names_of(picture)
        axes.set_xticks(range(len(tree.leaves)), [names.get(peer, "") for peer in tree.leaves], rotation=90)
        axes.tick_params(axis="x", length=0, labelsize=7)
    axes.set_title(_title(communities), fontsize=11, color=INK)
    return figure


def _draw_tree(axes: Axes, communities: Communities) -> None:
    """Three lines for each join: both branches up to it, and across."""
    tree = communities.dendrogram
    order = {peer: float(at) for at, peer in enumerate(tree.leaves)}
    spots = [(order[peer], 0.0) for peer in tree.peers]
    firsts = [communities.of[peer] for peer in tree.peers]
    ranked = sorted(set(firsts), key=lambda first: (-firsts.count(first), first))
    colours = dict(zip(ranked, COLOURS, strict=False))
    lines, shades = [], []
    for one, other, height, _ in tree.joins:
        (x0, y0), (x1, y1) = spots[int(one)], spots[int(other)]
        lines.append([(x0, y0), (x0, height), (x1, height), (x1, y1)])
        inside = height <= communities.height + 1e-6
        shades.append(colours.get(firsts[int(one)], OTHERS) if inside else OTHERS)
        spots.append(((x0 + x1) / 2, float(height)))
        firsts.append(firsts[int(one)])
    axes.add_collection(LineCollection(lines, colors=shades, linewidths=1.1, capstyle="round"))


def _title(communities: Communities) -> str:
    count = len(communities.firsts)
    return f"{len(communities.of)} models, {count} {'community' if count == 1 else 'communities'}"


def _label(axes: Axes, names: list[str]) -> None:
    axes.tick_params(length=0, labelsize=6.5)
    axes.spines[:].set_visible(False)
    if len(names) > NAMES_UP_TO:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
