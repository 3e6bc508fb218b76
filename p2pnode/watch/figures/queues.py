"""Who owned which queue when, as bars over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..graph import COLOURS, OTHERS, PeerGraph
from ..queues import ownership
from ..text import clean
from .drawing import SMALL, Drawing, plain_frame, time_unit

MOST_NAMED = len(COLOURS)


def plot_queues(pictures: Sequence[PeerGraph]) -> Figure:
    """A line for each queue, in the colour of its owner at the time; the number is the term of the lease."""
    rows = ownership(pictures)
    queues = list(dict.fromkeys(str(row["queue"]) for row in rows))
    owners = list(dict.fromkeys(str(row["owner"]) for row in rows))
    colours = {owner: COLOURS[place] if place < MOST_NAMED else OTHERS for place, owner in enumerate(owners)}
    names = {str(row["owner"]): clean(row["owner_name"] or str(row["owner"])[-8:], 20) for row in rows}
    start = pictures[0].time if pictures else 0.0
    seconds, unit = time_unit((pictures[-1].time - start) if pictures else 0.0)
    figure = Drawing(figsize=(7.2, 1.1 + 0.4 * max(1, len(queues))), layout="constrained")
    axes = figure.add_subplot()
    plain_frame(axes)
    for row in rows:
        since, until = (row["since"] - start) / seconds, (row["until"] - start) / seconds
        place = queues.index(str(row["queue"]))
        axes.barh(place, max(until - since, 0.0), left=since, height=0.6, color=colours[str(row["owner"])])
        if row["term"] is not None:
            axes.text(since, place, f" {row['term']}", va="center", ha="left", fontsize=7, color="white")
    axes.set_yticks(range(len(queues)), [clean(queue, 24) for queue in queues])
    axes.invert_yaxis()
    axes.set_xlabel(unit, **SMALL)
    axes.set_title("who owned which queue; the number is the term", loc="left", fontsize=9)
    handles = [Patch(color=colours[owner], label=names[owner]) for owner in owners[:MOST_NAMED]]
    if handles:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7)
    return figure
