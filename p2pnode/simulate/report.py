"""A simulation in the terminal: a progress bar while it runs, then a table and a line of bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..watch.text import sparkline
from .picture import accuracy_over_time, shortened
from .result import SimResult

BARS = 60  # of a course, in the terminal


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[float, float], None]]:
    """Tells how far it is, on stderr of a terminal."""
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
    losses = [one.test_loss for one in result.summaries]
    if losses:
        table.add_row("test loss", f"mean {sum(losses) / len(losses):.3f}, worst {max(losses):.3f}")
        received, sent = facts["mb_received_per_node"], facts["mb_sent_per_node"]
        table.add_row("per node", f"{received:.2f} MB received, {sent:.2f} MB sent")
        table.add_row("rounds", _range([one.rounds for one in result.summaries]))
        table.add_row("local steps", _range([one.steps for one in result.summaries]))
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
