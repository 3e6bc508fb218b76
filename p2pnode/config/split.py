"""How an experiment deals out one data set to several nodes (`--split dirichlet:0.3 --part 1/4`).

`shards/split.py` does the dealing; here is only what the user writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..wire.errors import UsageError, near
from .units import TINY, read_number, read_whole

SPLITS = "iid, parts, dirichlet:ALPHA, labels:K"
MOST = 10**6


@dataclass(frozen=True)
class Split:
    """How samples are dealt out. `amount` is alpha of `dirichlet`, the number of labels of `labels`."""

    how: Literal["iid", "parts", "dirichlet", "labels"] = "iid"
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.how}:{self.amount:g}" if self.amount else self.how


@dataclass(frozen=True)
class SplitPart:
    """One of `count` parts of a split, counted from 0. All nodes that deal with the same seed deal the same."""

    index: int
    count: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"


def parse_split(text: str) -> Split:
    """Read `iid`, `parts`, `dirichlet:ALPHA` or `labels:K`; UsageError says what is wrong."""
    how, colon, amount = text.strip().lower().partition(":")
    if how == "iid" and not colon:
        return Split("iid")
    if how == "parts" and not colon:
        return Split("parts")
    if how == "dirichlet":
        return Split("dirichlet", read_number(amount, TINY, MOST, "dirichlet:0.3"))
    if how == "labels":
        return Split("labels", read_whole(amount, 1, MOST, "labels:2"))
    hint = near(how, ("iid", "parts", "dirichlet", "labels"))
    raise UsageError(f"{text[:40]!r} is not a split; write one of {SPLITS}, for example dirichlet:0.3{hint}")


def parse_part(text: str) -> SplitPart:
    """Read `I/N`: the I-th of N parts, counted from 1. UsageError says what is wrong."""
    part, slash, parts = text.strip().partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal() or not 1 <= int(part) <= int(parts) <= 100_000:
        raise UsageError(f"{text[:40]!r} is not a part; for example 2/4, the second of four")
    return SplitPart(int(part) - 1, int(parts))
