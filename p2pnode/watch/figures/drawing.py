"""What all figures share: a figure that notebooks show, colours, frames and units of time."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..graph import OTHERS

INK = "#1c2430"
FAINT = "#c5cdd8"
SIMILARITY = LinearSegmentedColormap.from_list("similarity", ("#dfe5ee", "#8fb3f5", "#2f6fed", "#17336e"))
NAMES_UP_TO = 40
Colour = str | tuple[float, float, float, float]
SMALL: dict[str, Any] = {"fontsize": 7, "color": "#5b6b80"}

# of drawings with a column for legends, in inches
DRAWING, COLUMN, MARGIN = 5.6, 1.75, 0.15


# Text stays text: it is smaller and can be searched. Without a date and random ids equal figures are equal files.
SVG: Any = {"svg.fonttype": "none", "svg.hashsalt": "p2pnode"}


class Drawing(Figure):
    """A figure that notebooks show by itself as vectors, without pyplot and whatever backend it chose."""

    def _repr_svg_(self) -> str:
        buffer = io.StringIO()
        self.savefig(buffer, format="svg")
        return buffer.getvalue()

    def savefig(self, fname: Any, **options: Any) -> None:
        """Saves like matplotlib's savefig; equal figures give equal SVG files."""
        vector = "svg" in (options.get("format"), str(fname)[-3:].lower())
        with rc_context(SVG):
            super().savefig(fname, **({"metadata": {"Date": None}, **options} if vector else options))


def canvas(bounds: tuple[float, float, float, float], title: str, words: str) -> tuple[Drawing, Axes]:
    """A figure as high as a drawing within these bounds (left, right, low, high) needs, and its axes.

    `words` stand below the title. A column on the right is for a legend and a colour bar.
    """
    left, right, low, high = bounds
    height = DRAWING * max(0.5, min(1.1, (high - low) / max(1e-9, right - left)))
    title_height = 0.5 if words else 0.3
    whole = height + title_height + 2 * MARGIN
    width = DRAWING + COLUMN + 2 * MARGIN
    figure = Drawing(figsize=(width, whole))
    axes = figure.add_axes((MARGIN / width, MARGIN / whole, DRAWING / width, height / whole))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    top = 1 - MARGIN / whole
    figure.text(MARGIN / width, top, title, fontsize=10.5, color=INK, va="top")
    figure.text(MARGIN / width, top - 0.23 / whole, words, va="top", **SMALL)
    return figure, axes


def legend_column(figure: Drawing, handles: Sequence[Artist], scale: Normalize | None) -> None:
    """Fill the column right of a drawing: a legend at its top, a colour bar of similarities at its bottom."""
    width, height = figure.get_size_inches()
    edge = (MARGIN + DRAWING + 0.15) / width
    if handles:
        place = (edge, 1 - (MARGIN + 0.3) / height)
        style: dict[str, Any] = {"frameon": False, "handletextpad": 0.3, "borderaxespad": 0.0, "borderpad": 0.0}
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, fontsize=7.5, labelcolor=INK, **style)
    if scale is not None:
        axes = figure.add_axes((edge, MARGIN / height, 0.12 / width, 1.2 / height))
        bar = figure.colorbar(ScalarMappable(scale, SIMILARITY), cax=axes)
        axes.set_title("similarity of those\nwho exchange", loc="left", pad=5, **SMALL)
        axes.tick_params(labelsize=7, color=FAINT)
        bar.outline.set_visible(False)


def marks_of(names: Collection[str], colours: Mapping[str, str], silent: bool) -> list[Line2D]:
    """The legend of the colours of communities, of which peers have these names."""
    marks = [_mark(colour, words) for words, colour in colours.items()]
    if colours and set(names) - {"", *colours}:
        marks.append(_mark(OTHERS, "smaller communities"))
    if colours and "" in names:
        marks.append(_mark(OTHERS, "not known yet"))
    return [*marks, _mark(OTHERS, "silent", hollow=True)] if silent else marks


def _mark(colour: str, words: str, hollow: bool = False) -> Line2D:
    fill = "white" if hollow else colour
    return Line2D([], [], marker="o", linestyle="", color=colour, markerfacecolor=fill, markersize=5.5, label=words)


def scale_of(similarities: Iterable[float | None]) -> Normalize | None:
    """Returns the range from the least to the most similar pair; None where all are equally similar."""
    known = [similarity for similarity in similarities if similarity is not None]
    return Normalize(min(known), max(known)) if known and min(known) < max(known) else None


def shade(similarity: float | None, scale: Normalize | None) -> Colour:
    """The colour of a line between two that are so similar."""
    if similarity is None:
        return OTHERS
    return SIMILARITY(1.0 if scale is None else float(scale(similarity)))


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit to show a time span in, in seconds, and its name."""
    if seconds < 300:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 10_800 else (3600.0, "hours")


def plain_frame(axes: Axes) -> None:
    """Keep only the two lines of the axes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8, color=FAINT)
    axes.minorticks_off()


def write_instead(axes: Axes, words: str) -> None:
    """Write a text where nothing can be drawn."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", va="center", color=INK, fontsize=10, transform=axes.transAxes)
