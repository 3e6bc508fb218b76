"""Hands weights between the thread that trains a model and the node's thread. Neither waits for the other.

The node says after how many steps a round ends. The next step from there on copies the weights out; the node records,
publishes and merges while training goes on, and hands back a change, which the next step adds:

    x at the round's end                        copied: `after`
    node: merged start s, change = s − after
    x ← x + change                              the steps made since the copy are kept

Laws (tests/jobs/loop/test_handover.py): whatever the threads do, x is its first value plus all steps plus all changes
since it was last replaced, and every step is counted in exactly one copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...compression.weights import Floats


class LoopWeights(Protocol):
    """The shared weights of the model in training. Used by the thread that trains only."""

    def read(self) -> Floats:
        """A fresh copy of all of them."""
        ...

    def add(self, change: Floats) -> None:
        """Change them in place."""
        ...

    def replace(self, values: Floats, heal: bool) -> None:
        """Load other values in place; `heal` also removes values from the optimizer that are not finite."""
        ...

    def check(self) -> None:
        """UsageError when the model is no longer the one that was joined with."""
        ...


@dataclass(frozen=True)
class WeightsCopy:
    """The weights at the end of a round, and how many steps were made since the copy before."""

    weights: Floats
    steps: int
    total: int  # steps since the loop began


@dataclass(frozen=True)
class WeightsChange:
    """What the node wants done to the weights: a change to add, or values to go on from."""

    vector: Floats
    replaces: bool = False  # steps made meanwhile are dropped
    heals: bool = False


class Handover:
    """Between one training loop and one node. `stepped`, `settle` and `finish` are the loop's, the rest the node's.

    Whoever listens is called in the loop's thread whenever there is something to take.
    """

    def __init__(self, weights: LoopWeights) -> None:
        self.begun = weights.read()  # as they were when the loop joined
        self.total = 0  # steps of the loop
        self._weights = weights
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._counted = 0  # steps that copies have reported
        self._due: int | None = None  # the total at which the next copy is due
        self._copy: WeightsCopy | None = None
        self._change: WeightsChange | None = None

    # ---- the loop ----

    def stepped(self, total: int) -> bool:
        """The loop has made `total` steps. Adds what the node has handed back, or copies the weights out if due.

        Returns whether the weights were changed. UsageError when the model is no longer the one joined with.
        """
        with self._lock:
            self.total = total
            if self._change is not None:
                self._apply(self._change)
                self._change = None
                return True
            if self._due is not None and total >= self._due and self._copy is None:
                self._copy_out()
        return False

    def settle(self) -> bool:
        """Change the weights now if the node has handed something back; returns whether it had. By the loop."""
        with self._lock:
            change, self._change = self._change, None
            if change is not None:
                self._apply(change)
            return change is not None

    def finish(self) -> None:
        """Copies out what no round has shared yet, with what was handed back. Called by the loop when it ends."""
        self.settle()
        with self._lock:
            if self._copy is None and self.uncounted:
                self._copy_out()

    def _apply(self, change: WeightsChange) -> None:
        self._weights.check()
        if change.replaces:
            self._weights.replace(change.vector, change.heals)
            self._counted = self.total
        else:
            self._weights.add(change.vector)

    def _copy_out(self) -> None:
        self._weights.check()
        self._copy = WeightsCopy(self._weights.read(), self.uncounted, self.total)
        self._counted, self._due = self.total, None
        self._wake()

    # ---- the node ----

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called from now on. It must be quick, and may be called in any thread."""
        with self._lock:
            self._wake = wake

    def hand_back(self, change: WeightsChange) -> None:
        """Have the next step change the weights. The change before must have been applied."""
        with self._lock:
            if self._change is not None:
                raise RuntimeError("a change was handed back before the one before it was applied")
            self._change = change

    def end_round_after(self, steps: int) -> None:
        """Have the weights copied out once this many steps were made since the last copy."""
        with self._lock:
            self._due = self._counted + steps

    def wake(self) -> None:
        """Call whoever listens. In any thread."""
        self._wake()

    def take(self) -> WeightsCopy | None:
        """The copy of a round that has ended; None while none has."""
        with self._lock:
            taken, self._copy = self._copy, None
            return taken

    @property
    def uncounted(self) -> int:
        """Steps made since the last copy."""
        return self.total - self._counted

    @property
    def pending(self) -> bool:
        """Whether a change waits for the next step."""
        return self._change is not None
