"""What all figures share: a figure that notebooks show, colours, frames and units of time."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

INK = "#1c2430"
FAINT = "#c5cdd8"
SIMILARITY = LinearSegmentedColormap.from_list("similarity", ("#dfe5ee", "#8fb3f5", "#2f6fed", "#17336e"))
NAMES_UP_TO = 40


class Drawing(Figure):
    """A figure that notebooks show by itself, without pyplot and whatever backend it chose."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, dpi=110)
        return buffer.getvalue()


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


def write_instead(axes: Axes, words: str) -> None:
    """Write a text where nothing can be drawn."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", va="center", color=INK, fontsize=10, transform=axes.transAxes)
