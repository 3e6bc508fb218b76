"""Figures of simulations with matplotlib: one simulation, or several compared. They use the style of watch.figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..watch.figures.drawing import INK, Drawing, plain_frame, write_instead
from ..watch.glossary import TRAINING
from ..watch.graph import COLOURS
from ..wire.errors import LocalProblem
from .result import Moment, RoundRow, SimResult, course

if TYPE_CHECKING:
    from .comparison import Comparison

GRID = 200  # points of a band
FAR_APART = 5.0  # where one policy needs this many times the traffic of another, the axis is logarithmic
Floats = NDArray[np.float64]


class YAxis(NamedTuple):
    """What a figure shows on its y axis: accuracy, or the loss of tasks that have no accuracy."""

    label: str
    of_moment: Callable[[Moment], float]  # not a number before it is known
    of_row: Callable[[RoundRow], float]


ACCURACY = YAxis(
    f"{TRAINING['accuracy'].label} (%)",
    lambda moment: 100 * _known(moment.accuracy),
    lambda row: 100 * _known(row.status.state.training.accuracy),
)
LOSS = YAxis(
    "loss on the test data", lambda at: _known(at.test_loss), lambda row: _known(row.status.training.test_loss)
)
OVER: tuple[tuple[str, Callable[[Moment | RoundRow], float]], ...] = (
    ("virtual seconds", lambda at: at.time),
    ("MB received per node", lambda at: at.mb_received),
)


def plot_result(result: SimResult) -> Figure:
    """Every node (faint) and their mean, over virtual time and over traffic; with what nodes reach alone."""
    figure, panels = _two_panels(result.scenario.describe())
    if not result.curves:
        return _nothing(figure, panels)
    measure = _measure([result])
    by_node: dict[tuple[str, str], list[RoundRow]] = {}
    for row in result.curves:
        by_node.setdefault((row.node, row.job), []).append(row)
    mean = course(result.curves)
    faint = max(0.1, 0.5 - 0.02 * len(by_node))
    for axes, (_, across) in zip(panels, OVER, strict=True):
        for rows in by_node.values():
            values = [measure.of_row(row) for row in rows]
            axes.plot([across(row) for row in rows], values, color=COLOURS[0], alpha=faint, linewidth=0.7)
        label = f"mean of {len(by_node)} nodes"
        axes.plot([across(at) for at in mean], [measure.of_moment(at) for at in mean], color=COLOURS[0], label=label)
        alone_too = result.alone_and_together()
        for number, (alone, _) in enumerate(alone_too):
            label = "" if number else f"{len(alone_too)} of them trained alone, at the end"
            axes.axhline(100 * alone, label=label, color=COLOURS[1], linestyle=":", linewidth=1.0)
    _finish(panels, measure)
    return figure


def plot_comparison(comparison: Comparison) -> Figure:
    """A line for each policy with a band: mean and standard deviation over the seeds, over time and over traffic."""
    seeds = len(comparison.seeds)
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else f"seed {comparison.seeds[0]}"
    figure, panels = _two_panels(f"{comparison.describe()}; {spread}")
    measure = _measure(list(comparison.results.values()))
    ends = []  # of the traffic of each policy
    for number, policy in enumerate(comparison.policies):
        courses = [course(result.curves) for (found, _), result in comparison.results.items() if found == policy]
        known = [[at for at in moments if np.isfinite(measure.of_moment(at))] for moments in courses]
        for axes, (_, across) in zip(panels, OVER, strict=True):
            lines = [
                (np.array([across(at) for at in moments]), np.array([measure.of_moment(at) for at in moments]))
                for moments in known
                if moments
            ]
            if lines:
                _band(axes, lines, COLOURS[number % len(COLOURS)], policy)
        ends += [moments[-1].mb_received for moments in known if moments]
    _finish(panels, measure)
    if ends and 0 < min(ends) < max(ends) / FAR_APART:
        panels[1].set_xscale("log")
        panels[1].set_xlim(left=min(ends) / 20)
        panels[1].xaxis.set_major_formatter("{x:g}")
    return figure


def _band(axes: Axes, lines: Sequence[tuple[Floats, Floats]], colour: str, label: str) -> None:
    """The mean of several lines and their standard deviation, as far as all of them go."""
    begin, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    grid = np.linspace(begin, max(begin, end), GRID)
    values = np.array([np.interp(grid, x, y) for x, y in lines])
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(lines) > 1 else np.zeros(GRID)
    axes.fill_between(grid, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axes.plot(grid, mean, color=colour, label=label)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix says the format. LocalProblem when it cannot be written."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise LocalProblem(f"cannot write the figure {path}: {error}") from None


def _two_panels(title: str) -> tuple[Figure, list[Axes]]:
    figure = Drawing(figsize=(9.6, 4.0), layout="constrained")
    figure.suptitle(title, fontsize=10.5, color=INK)
    return figure, list(figure.subplots(1, 2, sharey=True))


def _finish(panels: Sequence[Axes], measure: YAxis) -> None:
    for axes, (label, _) in zip(panels, OVER, strict=True):
        plain_frame(axes)
        axes.grid(alpha=0.25)
        axes.set_xlim(left=0)
        axes.set_xlabel(label, fontsize=9)
    panels[0].set_ylabel(measure.label, fontsize=9)
    if measure is LOSS:
        panels[0].set_yscale("log")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right" if measure is ACCURACY else "upper right")


def _nothing(figure: Figure, panels: Sequence[Axes]) -> Figure:
    for axes, words in zip(panels, ("nothing was trained", ""), strict=True):
        write_instead(axes, words)
    return figure


def _measure(results: Sequence[SimResult]) -> YAxis:
    return ACCURACY if any(result.accuracies() for result in results) else LOSS


def _known(value: float | None) -> float:
    return float("nan") if value is None else value
