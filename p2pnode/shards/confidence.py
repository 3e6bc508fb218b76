"""The confidence of models in each sample: the probability they give to the true label, gathered while they train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.checkpoints import Arrays
from .sample_states import MAX_MODELS, Shares, StateRules, scored, untouched
from .shard import SampleNumbers

SMOOTHING = 0.5  # weight of a new value
MODEL_CHARS = 64
UNSEEN = -1.0  # stands for NaN on disk

Keys = NDArray[np.uint64]  # what a sample is known by over restarts, one for each place


class Confidences:
    """The smoothed confidence in each of `count` samples; NaN for samples that were never seen."""

    def __init__(self, count: int, smoothing: float = SMOOTHING) -> None:
        self.values: Shares = np.full(count, np.nan, np.float32)
        self._smoothing = np.float32(smoothing)

    def note(self, indices: SampleNumbers, shares: Shares) -> None:
        """Take in confidences. Values that are not finite are ignored; for a repeated index the last value counts."""
        good = np.isfinite(shares)
        indices, shares = indices[good], np.clip(shares[good], 0.0, 1.0)
        times = np.bincount(indices, minlength=len(self.values))
        seen = np.flatnonzero(times)
        last = np.empty(len(self.values), np.float32)
        last[indices] = shares  # numpy keeps the last value of a repeated index
        new, old = last[seen], self.values[seen]
        self.values[seen] = np.where(np.isnan(old), new, new + (1 - self._smoothing) ** times[seen] * (old - new))

    def mean(self, indices: SampleNumbers) -> float:
        """The mean over some samples, such as a shard's; NaN when none of them was seen."""
        seen = self.values[indices]
        seen = seen[~np.isnan(seen)]
        return float(seen.mean()) if len(seen) else float("nan")


class Scores:
    """Confidence, confidence at the beginning of a visit, and state of each of the `count` samples in a pool."""

    def __init__(self, count: int) -> None:
        self.confidence = Confidences(count)
        self.states = untouched(count)
        self.first: Shares = np.full(count, np.nan, np.float32)  # since the current visit began
        self._first_in_round: Shares = np.full(count, np.nan, np.float32)

    def __len__(self) -> int:
        return len(self.first)

    def note(self, places: SampleNumbers, shares: Shares) -> None:
        """Take in the confidences of consecutive batches, in their order."""
        shares = np.clip(shares, 0.0, 1.0)
        for kept in (self.first, self._first_in_round):
            new = np.flatnonzero(np.isnan(kept[places]))[::-1]  # backwards: the first value of a sample is written last
            kept[places[new]] = shares[new]
        self.confidence.note(places, shares)

    def end_round(self, model: str, rules: StateRules, evidence: bool = True) -> None:
        """Update states by the first confidence in each sample of the round, before `model` trained on it.

        The model's failures count against samples only if it is `evidence`: it holds new work of other peers.
        """
        touched = np.flatnonzero(~np.isnan(self._first_in_round))
        if len(touched):
            shares = self._first_in_round[touched]
            usual = float(np.median(shares)) if evidence else 0.0
            self.states = scored(self.states, model, touched, shares, usual, rules)
            self._first_in_round[touched] = np.nan

    def end_visit(self, places: SampleNumbers, minimum: float) -> tuple[float, float] | None:
        """Mean confidence before and after a visit of some samples; the next visit begins.

        None, and the visit goes on, while less than the share `minimum` of the samples was seen.
        """
        first = self.first[places]
        seen = ~np.isnan(first)
        if not len(places) or seen.mean() < minimum:
            return None
        before, after = float(first[seen].mean()), self.confidence.mean(places)
        self.first[places] = np.nan
        return before, after

    def carried(self, old: Keys, new: Keys) -> Scores:
        """The scores of the samples `new`; those that were among `old` keep theirs."""
        after = Scores(len(new))
        order = np.argsort(old, kind="stable")
        at = np.minimum(np.searchsorted(old[order], new), max(0, len(old) - 1))
        known = np.flatnonzero(old[order][at] == new) if len(old) else np.empty(0, np.int64)
        here = order[at[known]] if len(old) else known
        for mine, theirs in zip(after._columns(), self._columns(), strict=True):
            mine[known] = theirs[here]
        after.states = replace(after.states, models=self.states.models)
        return after

    def _columns(self) -> list[NDArray[Any]]:
        states = self.states
        verdicts: list[NDArray[Any]] = [states.sure, states.failing, states.level, states.quarantined]
        return [self.confidence.values, self.first, self._first_in_round, states.confidence, *verdicts]

    def arrays(self) -> Arrays:
        """Everything that `restored` needs."""
        columns = {f"{number}": np.nan_to_num(column, nan=UNSEEN) for number, column in enumerate(self._columns())}
        return {**columns, "models": np.array([model.encode() for model in self.states.models], f"S{MODEL_CHARS}")}


def restored(arrays: Mapping[str, NDArray[Any]]) -> Scores:
    """The scores that `Scores.arrays` saved; ValueError when something is missing or has the wrong form."""
    if "0" not in arrays or "models" not in arrays:
        raise ValueError("the confidences are missing")
    scores = Scores(len(arrays["0"]))
    columns = scores._columns()
    for number, column in enumerate(columns):
        found = arrays.get(f"{number}")
        if found is None or found.shape != column.shape or found.dtype != column.dtype:
            raise ValueError("the confidences are incomplete")
        column[:] = np.where(found == UNSEEN, np.nan, found) if found.dtype == np.float32 else found
    models = tuple(bytes(model).decode(errors="replace") for model in arrays["models"][:MAX_MODELS])
    scores.states = replace(scores.states, models=models)
    return scores
