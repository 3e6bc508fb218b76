"""A simulation in the terminal: a progress bar while it runs, then a table and a line of bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..watch.text import sparkline
from ..wire.errors import LocalProblem
from .result import RoundRow, SimResult


def shortened(values: Sequence[float], maximum: int) -> list[float]:
    """At most `maximum` values, each the mean of several consecutive ones."""
    count = min(maximum, len(values))
    edges = [len(values) * place // count for place in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def accuracy_over_time(curves: Sequence[RoundRow], points: int = 120) -> list[tuple[float, float, float]]:
    """(virtual time, mean, worst) of the nodes' latest accuracies, at several moments."""
    known = [(row.time, row.node, row.status.state.training.accuracy) for row in curves]
    rows = sorted((time, node, accuracy) for time, node, accuracy in known if accuracy is not None)
    latest: dict[str, float] = {}
    every = max(1, len(rows) // points)
    found = []
    for place, (time, node, accuracy) in enumerate(rows, 1):
        latest[node] = accuracy
        if place % every == 0 or place == len(rows):
            found.append((time, sum(latest.values()) / len(latest), min(latest.values())))
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
        rows = [row for row in result.curves if row.node == node and row.status.state.training.accuracy is not None]
        accuracies = [row.status.state.training.accuracy for row in rows]
        style = {"color": "tab:blue", "alpha": 0.25, "linewidth": 0.8}
        over_time.plot([row.time for row in rows], accuracies, **style)
        over_bytes.plot([row.mb_received for row in rows], accuracies, **style)
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


BARS = 60  # of a course, in the terminal


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[float, float], None]]:
    """Shows the progress on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda share, now: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("virtual 0 s", total=1.0)
        yield lambda share, now: bar.update(task, completed=share, description=f"virtual {now:.0f} s")


def show(result: SimResult) -> None:
    """The summary: a table, and accuracy over time as a line of bars."""
    facts: Any = result.facts()
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    if facts["accuracy"] is not None:
        table.add_row("accuracy together", f"mean {facts['accuracy']:.1%}, worst {facts['accuracy_worst']:.1%}")
    if facts["alone"] is not None:
        same = f"{len(result.compared())} nodes; the same reach {facts['same_nodes_together']:.1%} together"
        table.add_row("accuracy alone", f"mean {facts['alone']:.1%} ({same})")
    circles = facts["circles"]
    if len(circles) > 1:
        table.add_row("circles", f"{len(circles)}, of {', '.join(map(str, circles))} nodes")
    losses = [one.status.training.test_loss or 0.0 for one in result.summaries]
    if losses:
        table.add_row("test loss", f"mean {sum(losses) / len(losses):.3f}, worst {max(losses):.3f}")
        received, sent = facts["mb_received_per_node"], facts["mb_sent_per_node"]
        table.add_row("per node", f"{received:.2f} MB received, {sent:.2f} MB sent")
        table.add_row("rounds", _range([one.status.state.training.round or 0 for one in result.summaries]))
        table.add_row("local steps", _range([one.status.steps for one in result.summaries]))
    table.add_row("time", f"{result.seconds:.0f} s virtual, {result.real_seconds:.0f} s real")
    table.add_row("digest", result.digest[:16])
    console = Console()
    console.print(table)
    course = [mean for _, mean, _ in accuracy_over_time(result.curves)]
    if course:
        bars = sparkline(shortened(course, BARS), BARS)
        console.print(f"accuracy {course[0]:.0%} {bars} {course[-1]:.0%}", highlight=False)
    if not result.finished:
        console.print("the time ran out before every node had done its rounds", style="yellow")
    for index, error in sorted(result.ended.items()):
        console.print(f"node {index} ended: {error}", style="red", markup=False)


def _range(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}"
