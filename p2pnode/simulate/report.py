"""Simulations in the terminal: a progress bar while they run, then a table; and CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..watch.rows import Row, TableRows
from ..watch.text import sparkline
from ..wire.errors import LocalProblem
from .comparison import Comparison
from .result import SimResult, course
from .watching import ignore

BARS = 60  # of a course, in the terminal


def shortened(values: Sequence[float], maximum: int) -> list[float]:
    """Returns at most `maximum` values, each the mean of several consecutive ones."""
    count = min(maximum, len(values))
    edges = [len(values) * place // count for place in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


@contextmanager
def progress_bar(lines: bool) -> Iterator[Callable[[float, str], None]]:
    """Shows on stderr what runs: a bar in a terminal; elsewhere, with `lines`, a line whenever the words change."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_changes(console) if lines else ignore
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=words)


def _print_changes(console: Console) -> Callable[[float, str], None]:
    last = ""

    def show(_: float, words: str) -> None:
        nonlocal last
        if words != last:
            last = words
            console.print(words, highlight=False, markup=False)

    return show


def show(result: SimResult) -> None:
    """The summary: a table, and accuracy over time as a line of bars."""
    figures: Any = result.summary()
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    if figures["accuracy"] is not None:
        table.add_row("accuracy together", f"mean {figures['accuracy']:.1%}, worst {figures['accuracy_worst']:.1%}")
    if figures["accuracy_alone"] is not None:
        same = f"{len(result.alone_and_together())} nodes; the same reach {figures['accuracy_same_nodes']:.1%} together"
        table.add_row("accuracy alone", f"mean {figures['accuracy_alone']:.1%} ({same})")
    circles = figures["circles"]
    if len(circles) > 1:
        table.add_row("circles", f"{len(circles)}, of {', '.join(map(str, circles))} nodes")
    if figures["test_loss"] is not None:
        table.add_row("test loss", f"mean {figures['test_loss']:.3f}, worst {figures['test_loss_worst']:.3f}")
    if result.nodes:
        received, sent = figures["mb_received_per_node"], figures["mb_sent_per_node"]
        table.add_row("per node", f"{received:.2f} MB received, {sent:.2f} MB sent")
        table.add_row("rounds", _range([one.status.state.training.round or 0 for one in result.nodes]))
        table.add_row("local steps", _range([one.status.steps for one in result.nodes]))
    table.add_row("time", f"{result.virtual_seconds:.0f} s virtual, {result.real_seconds:.0f} s real")
    table.add_row("digest", result.digest[:16])
    console = Console()
    console.print(table)
    bars = [at.accuracy for at in course(result.curves) if at.accuracy is not None]
    if bars:
        line = sparkline(shortened(bars, BARS), BARS)
        console.print(f"accuracy {bars[0]:.0%} {line} {bars[-1]:.0%}", highlight=False)
    _warn(console, result)


def _warn(console: Console, result: SimResult, prefix: str = "") -> None:
    """Say what did not go as planned."""
    if not result.finished:
        console.print(f"{prefix}the time ran out before every node had done its rounds", style="yellow")
    for index, error in sorted(result.errors.items()):
        console.print(f"{prefix}node {index} ended: {error}", style="red", markup=False)


# ---- comparisons ----

Column = tuple[str, str, float, int]
COLUMNS: tuple[Column, ...] = (  # name, heading, factor, digits
    ("accuracy", "accuracy %", 100, 1),
    ("accuracy_worst", "worst node %", 100, 1),
    ("test_loss", "test loss", 1, 3),
    ("mb_received_per_node", "MB received", 1, 2),
    ("virtual_seconds", "virtual s", 1, 0),
)


def show_comparison(comparison: Comparison) -> None:
    """A row for each policy: mean ± standard deviation over the seeds."""
    rows = comparison.table()
    shown = [column for column in COLUMNS if any(row[f"{column[0]}_mean"] is not None for row in rows)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", style="bold")
    for _, heading, _, _ in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["policy"], *(_mean_and_spread(row, column) for column in shown))
    console = Console()
    console.print(table)
    seeds = ", ".join(map(str, comparison.seeds))
    spread = f"mean ± standard deviation over the seeds {seeds}" if len(comparison.seeds) > 1 else f"seed {seeds}"
    console.print(f"{comparison.describe()};\n{spread}", highlight=False, markup=False)
    for (policy, seed), result in comparison.results.items():
        _warn(console, result, f"{policy}, seed {seed}: ")


def _mean_and_spread(row: Row, column: Column) -> str:
    name, _, factor, digits = column
    mean, spread = row[f"{name}_mean"], row[f"{name}_std"]
    if mean is None:
        return ""
    return f"{factor * mean:.{digits}f}" + ("" if spread is None else f" ± {factor * spread:.{digits}f}")


def write_csv(path: str | Path, rows: TableRows) -> None:
    """Write rows with a head line. LocalProblem when it cannot."""
    try:
        with Path(path).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows.columns())
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise LocalProblem(f"cannot write {path}: {error.strerror}") from None


def _range(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}"
