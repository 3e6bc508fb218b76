"""The contract of a selector: the rule that decides which coordinates of a residual a node sends.

A node keeps the progress that it has not sent yet in a residual. After each round the author of a delta set
(merging/deltaset/author.py) asks its selector which coordinates go out, and tells it afterwards what they cost:

    indices = selector.select(residual, progress, budget, loss)
    selector.sent(entries, payload_bytes)

The selectors are in the folder selectors/, its registry.py says how a run chooses one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .delta import Indices
from .weights import Floats, Units

MAX_HINT_BYTES = 256  # what a selector may publish along with an entry, for the selectors of other nodes

Background = Callable[[Callable[[], None]], None]  # runs small work that training does not wait for


def run_now(work: Callable[[], None]) -> None:
    """A `Background` without a thread: the work is done when this returns. Simulations need that."""
    work()


@dataclass(frozen=True)
class Budget:
    """How much a round may send."""

    count: int  # coordinates, if each one is sent by itself; neighbours are cheaper, so a block may have more
    maximum: int  # coordinates that the run's rules allow in one entry
    bits: int = 2  # of a value
    scarcity: float = 0.0  # of the link: 0 when it has room, 1 when it is full


class GradientUser(Protocol):
    """The part of a selector that needs gradients. Training feeds it after a round (training/background.py)."""

    def due(self, steps_done: int) -> bool:
        """Whether it is time to measure gradients at two points."""
        ...

    def points(self, weights: Floats, steps_done: int) -> tuple[Floats, Floats]:
        """The two weight vectors at which to measure; `note` takes the result."""
        ...

    def note(self, above: Floats, below: Floats) -> None:
        """Takes the gradients at the two points, measured on the same batch."""
        ...

    def follow(self, gradient: Floats) -> None:
        """Takes a gradient that training has computed anyway."""
        ...


class Selector(Protocol):
    """Chooses coordinates for one node. Subclass it: only `select` has no default.

    A selector saves nothing. What it has learned comes back within a few rounds after a restart; the residual, which
    must not be lost, is saved by its author. With the same seed and the same calls it makes the same choices.
    """

    single: bool = True  # whether the latest choice was single coordinates, which tell what one costs
    gradients: GradientUser | None = None  # None where the selector needs no gradients
    hint: bytes = b""  # published with the next entry, at most MAX_HINT_BYTES; empty: nothing

    def select(self, residual: Units, progress: Floats, budget: Budget, loss: float) -> Indices:
        """Heavy. The coordinates to send: increasing, each with a residual other than 0, at most `budget.maximum`.

        `progress` is what the round added to the weights and `loss` its mean loss.
        """
        ...

    def sent(self, entries: int, payload_bytes: int) -> None:
        """Tells how many coordinates of the latest choice went out, and in how many bytes."""

    def hear(self, hint: bytes) -> None:
        """Light. Takes the hint of another node, which nobody has checked."""


@dataclass(frozen=True)
class SelectorSetup:
    """What a selector is made from."""

    layers: tuple[int, ...]  # sizes of the layers, in order
    seed: int
    settings: Mapping[str, float]
    background: Background = run_now


MakeSelector = Callable[[SelectorSetup], Selector]
