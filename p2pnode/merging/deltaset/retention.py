"""How far back entries are kept: long enough for stragglers, and an author's own until others have them."""

from __future__ import annotations

from collections.abc import Sequence

from .entry import Chain
from .heads import Heads, covered_by

KEPT = 64  # entries of each chain that stay although a snapshot covers them
COPIES = 2  # others that must have an author's own entries before it may drop them


def droppable(heads: Heads, snapshot: Heads, own: str, others: Sequence[Heads], kept: int = KEPT) -> dict[Chain, int]:
    """Up to which seq of each chain entries may be dropped at `heads` (for `EntrySet.drop`).

    Only what `snapshot` covers goes, the last `kept` stay, and of the chains of `own` (our peer id) only what COPIES of
    the `others` have by their heads.
    """
    until = {}
    for chain, head in heads.items():
        last = min(snapshot.get(chain, 0), head - kept)
        if chain.peer == own:
            last = min(last, covered_by(heads, chain, others, COPIES))
        if last > 0:
            until[chain] = last
    return until
