"""A settling phase: all members let their learning rate fall for a while, because one of them wants to export. Pure.

A run without a planned end trains at a constant rate, which leaves noise in the shared weights. The running mean takes
out some of it; 150 to 300 steps of all members with a falling rate take out far more. One member alone cannot do that:
its steps would bend the weights towards its own data. So a member that wants good weights names a step of the run at
which the phase begins, members pass that number on in their exchanges, and everybody's rate falls together. Afterwards
all go on at the full rate.

Settling often slows learning down, so a phase is only followed when enough steps have passed since the one before.
That is also what a hostile member can do at most: take a quarter of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from .schedule import LAST_RATE

FEWEST, MOST = 150, 1000  # steps of a phase
SHARE = 0.1  # of the steps that the run has done
PAUSE = 3  # lengths of a phase between its end and the next one
AHEAD = 1 + PAUSE  # lengths of a phase by which one may be announced before it begins
DENSITY = 2.5  # factor on the density of entries in a phase
LATEST = 1 << 40  # step at which a phase may begin


@dataclass(frozen=True)
class Phase:
    """A settling phase that begins at a step of the run."""

    begin: int

    @property
    def length(self) -> int:
        return min(MOST, max(FEWEST, int(SHARE * self.begin)))

    @property
    def end(self) -> int:
        """The step at which the weights have settled."""
        return self.begin + self.length

    @property
    def next_begin(self) -> int:
        """The first step at which another phase may begin."""
        return self.end + PAUSE * self.length

    def rate(self, at: int) -> float:
        """The factor on the learning rate at a step of the run."""
        return max(LAST_RATE, (self.end - at) / self.length) if self.begin <= at < self.end else 1.0


class Settling:
    """The settling phase that a member knows of: the current one, the one to come, or the last."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self._earliest = 1

    @property
    def begin(self) -> int:
        """The step at which it begins, as members tell each other; 0 where there was none."""
        return 0 if self.phase is None else self.phase.begin

    def rate(self, at: int) -> float:
        """The factor on the learning rate at a step of the run."""
        return 1.0 if self.phase is None else self.phase.rate(at)

    def request(self, at: int) -> Phase:
        """The phase that goes on or is to come at step `at`; else a new one, as soon as the pause is over."""
        if self.phase is None or at >= self.phase.end:
            self._follow(Phase(max(1, at, self._earliest, 0 if self.phase is None else self.phase.next_begin)))
        assert self.phase is not None
        return self.phase

    def hear(self, begin: int, at: int) -> None:
        """A partner says that a phase begins or began at step `begin`. Follow it unless that is too soon or too far.

        Where two members asked at about the same time, the earlier phase counts.
        """
        heard, known = Phase(begin), self.phase
        if not self._earliest <= begin <= min(LATEST, at + AHEAD * heard.length):
            return
        if known is None or begin >= known.next_begin or known.begin - known.length <= begin < known.begin:
            self._follow(heard)

    def _follow(self, phase: Phase) -> None:
        if self.phase is not None and phase.begin >= self.phase.next_begin:
            self._earliest = self.phase.next_begin
        self.phase = phase
