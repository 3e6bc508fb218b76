"""The returns of all laptops of an actors job, as curves over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from ..graph import COLOURS, OTHERS, PeerGraph
from ..laptops import laptop_rows, return_curves
from ..text import clean
from .drawing import SMALL, Drawing, plain_frame, time_unit


def plot_laptops(pictures: Sequence[PeerGraph]) -> Figure:
    """A line for each laptop: its mean return over the time that was seen."""
    curves = return_curves(pictures)
    named = {(row["laptop"], row["job"]): row for picture in pictures for row in laptop_rows(picture)}
    start, end = (pictures[0].time, pictures[-1].time) if pictures else (0.0, 0.0)
    seconds, unit = time_unit(end - start)
    figure = Drawing(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    plain_frame(axes)
    for place, (key, points) in enumerate(sorted(curves.items(), key=lambda one: str(named[one[0]]["name"]))):
        row = named[key]
        label = clean(f"{row['name'] or str(row['laptop'])[-8:]}: {row['task']}", 40)
        colour = COLOURS[place] if place < len(COLOURS) else OTHERS
        times, returns = [(time - start) / seconds for time, _ in points], [value for _, value in points]
        axes.plot(times, returns, color=colour, label=label, marker="." if len(points) == 1 else "")
    axes.set_xlabel(unit, **SMALL)
    axes.set_title("return of each laptop, the mean of its latest episodes", loc="left", fontsize=9)
    if curves:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7)
    return figure
