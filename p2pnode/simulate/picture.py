"""Pictures of a simulation: a line of little bars for the terminal, and a PNG where matplotlib is there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..wire.errors import LocalProblem
from .curves import RoundRow
from .result import SimResult


def shortened(values: Sequence[float], most: int) -> list[float]:
    """Values as at most so many, each the mean of some in a row."""
    count = min(most, len(values))
    edges = [len(values) * place // count for place in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def accuracy_over_time(curves: Sequence[RoundRow], points: int = 120) -> list[tuple[float, float, float]]:
    """(virtual time, mean, worst) of the nodes' latest accuracies, at so many moments."""
    rows = sorted(row for row in curves if row.accuracy is not None)
    if not rows:
        return []
    latest: dict[str, float] = {}
    every = max(1, len(rows) // points)
    found = []
    for place, row in enumerate(rows, 1):
        assert row.accuracy is not None
        latest[row.node] = row.accuracy
        if place % every == 0 or place == len(rows):
            found.append((row.time, sum(latest.values()) / len(latest), min(latest.values())))
    return found


def can_draw() -> bool:
    """Whether a PNG can be made."""
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def draw(result: SimResult, path: str | Path, title: str) -> None:
    """Accuracy of every node over virtual time and over megabytes received, with what nodes reach alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (over_time, over_bytes) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for node in sorted({row.node for row in result.curves}):
        rows = [row for row in result.curves if row.node == node and row.accuracy is not None]
        style = {"color": "tab:blue", "alpha": 0.25, "linewidth": 0.8}
        over_time.plot([row.time for row in rows], [row.accuracy for row in rows], **style)
        over_bytes.plot([row.mb_received for row in rows], [row.accuracy for row in rows], **style)
    mean = accuracy_over_time(result.curves)
    over_time.plot([time for time, _, _ in mean], [value for _, value, _ in mean], color="tab:blue", label="together")
    for number, (alone, _) in enumerate(result.compared()):
        label = "alone, at the end" if number == 0 else None
        over_time.axhline(alone, color="tab:orange", linestyle=":", linewidth=1, label=label)
    over_time.set_xlabel("virtual seconds")
    over_time.set_ylabel("accuracy on the test data")
    over_bytes.set_xlabel("MB received")
    over_time.legend(loc="lower right")
    figure.suptitle(title)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise LocalProblem(f"cannot write the picture {path}: {error}") from None
    finally:
        pyplot.close(figure)
