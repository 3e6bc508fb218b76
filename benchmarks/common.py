"""What benchmarks share: flags, progress on stderr, a table for people and one JSON line for machines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median

Figures = dict[str, float | int | str]


Measure = Callable[[argparse.Namespace], Figures]


def run(name: str, measure: Measure, parser: argparse.ArgumentParser | None = None) -> None:
    """The main function of a benchmark: parse flags, measure, print."""
    parser = parser or argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, within two minutes")
    arguments = parser.parse_args()
    figures: Figures = {"benchmark": name, "quick": arguments.quick, **measure(arguments)}
    if arguments.json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures))
    for figure, value in figures.items():
        print(f"{figure:<{width}}  {rounded(value)}")


def read_sizes(text: str) -> tuple[int, ...]:
    """Of swarms, for argparse: whole numbers above zero with commas between."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are not sizes of swarms; for example 100,1000")
    return tuple(int(word) for word in words)


def rounded(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def progress(text: str) -> None:
    print(f"  … {text}", file=sys.stderr, flush=True)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: list[float]) -> float:
    return float(median(values))
