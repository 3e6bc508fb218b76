"""Weights for `export --settle`: the user asks for a settling phase, and the shared weights at its end are kept."""

from __future__ import annotations

from collections.abc import Callable

from ...compression.weights import Floats
from ...merging.policy import Policy
from ...merging.settling import Phase
from ...runtime.events import Events
from ...wire.errors import UsageError


class SettledWeights:
    """The settling phase that this node's user asked for, and the weights at its end until they are written."""

    def __init__(self, policy: Policy, run_steps: Callable[[], int], events: Events) -> None:
        self._policy = policy
        self._run_steps = run_steps
        self._events = events
        self._wanted: Phase | None = None
        self._weights: Floats | None = None

    def ask(self) -> str:
        """How far the phase is, which this begins if there is none; "" when the weights are there.

        UsageError where members cannot settle together.
        """
        settling = self._policy.can.settling
        if settling is None:
            raise UsageError(
                "only a run with the policy deltaset and without a planned length can settle; in a run with one the "
                "learning rate falls at its end: export without --settle"
            )
        at = self._run_steps()
        if self._weights is not None and self._wanted is not None and at < self._wanted.next_begin:
            return ""
        phase = settling.settle()
        if phase != self._wanted:
            self._wanted, self._weights = phase, None
            self._events.say("settling", f"all members settle from step {phase.begin:,} to {phase.end:,} of the run")
        if at < phase.begin:
            return f"the last settling phase was not long ago; the next one begins in {phase.begin - at:,} steps"
        return f"settling: {max(0, at - phase.begin):,} of {phase.length:,} steps"

    def after_round(self) -> None:
        """Light. Keep the shared weights if the phase that the user asked for has just ended."""
        if self._wanted is not None and self._weights is None and self._run_steps() >= self._wanted.end:
            self._weights = self._policy.weights()

    def take(self) -> Floats:
        """The settled weights, which are forgotten here."""
        weights, self._weights, self._wanted = self._weights, None, None
        assert weights is not None
        return weights
