"""Shared by all benchmarks: flags, progress on stderr, a table for people, one JSON line for programs."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from p2pnode.wire.errors import LocalProblem, P2pnodeError

Figures = dict[str, float | int | str]
Row = dict[str, float | int | str | None]


@dataclass
class Report:
    """Single figures, and rows where a benchmark compares several schemes."""

    figures: Figures = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


Measure = Callable[[argparse.Namespace], Figures | Report]


def run(
    name: str, measure: Measure, parser: argparse.ArgumentParser | None = None, argv: list[str] | None = None
) -> None:
    """The main function of a benchmark: parse flags, measure, print.

    What the machine lacks (a data set, root, a browser) ends it with one line on stderr and the error's exit code.
    """
    parser = parser or argparse.ArgumentParser()
    parser.prog = f"python -m benchmarks.{name}"
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements, about two minutes")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that `finally` cleans up
    try:
        measured = measure(arguments)
    except P2pnodeError as problem:
        parser.exit(getattr(problem, "exit_code", 1), f"{parser.prog}: {problem}\n")
    report = measured if isinstance(measured, Report) else Report(measured)
    figures: Figures = {"benchmark": name, "quick": arguments.quick, **report.figures}
    if arguments.json:
        print(json.dumps({**figures, "rows": report.rows} if report.rows else figures))
        return
    for line in table(report.rows):
        print(line)
    width = max(map(len, figures))
    for figure, value in figures.items():
        print(f"{figure:<{width}}  {rounded(value)}")


def need_fashion_mnist() -> None:
    """Raise LocalProblem with the command that installs Fashion-MNIST unless it is on this machine."""
    from p2pnode.tasks.fashion_mnist import SYSTEM, find_idx  # imports torch

    if find_idx(SYSTEM, "train-images-idx3-ubyte") is None:
        raise LocalProblem("this needs Fashion-MNIST; install it with `apt-get install dataset-fashion-mnist`")


def words(text: str) -> list[str]:
    """Read words with commas between, for argparse."""
    return [word for word in text.split(",") if word]


def numbers(text: str) -> list[int]:
    """Read whole numbers with commas between, for argparse."""
    return [int(word) for word in words(text)]


def read_sizes(text: str) -> tuple[int, ...]:
    """Read sizes of swarms, whole numbers above zero with commas between, for argparse."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are not sizes of swarms; for example 100,1000")
    return tuple(int(part) for part in parts)


def columns(rows: Iterable[Row]) -> list[str]:
    """The names of all columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def table(rows: list[Row]) -> list[str]:
    """Rows as aligned lines of text with a heading."""
    names = columns(rows)
    cells = [names, *([rounded(row.get(name)) for name in names] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def rounded(value: float | int | str | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def progress(text: str) -> None:
    """Say on stderr how far the benchmark is."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def progress_row(row: Row) -> None:
    """Say on stderr which row is done."""
    progress(" ".join(f"{name} {rounded(value)}" for name, value in row.items()))


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: list[float]) -> float:
    return float(median(values))
