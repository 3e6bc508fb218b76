"""What models made of each sample a node trains on: its confidence, how that was first, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.checkpoints import Arrays
from .confidence import Confidences, Shares
from .datum import MAX_MODELS, StateRules, scored, untouched
from .shard import SampleNumbers

Keys = NDArray[np.uint64]  # what a sample is known by over restarts, one for each place
MODEL_CHARS = 64
UNSEEN = -1.0  # stands for NaN on disk


class Scores:
    """One number of each kind for each of `count` places."""

    def __init__(self, count: int) -> None:
        self.confidence = Confidences(count)
        self.states = untouched(count)
        self.first: Shares = np.full(count, np.nan, np.float32)  # since the last visit was told
        self._of_round: Shares = np.full(count, np.nan, np.float32)

    def __len__(self) -> int:
        return len(self.first)

    def note(self, places: SampleNumbers, shares: Shares) -> None:
        """Take in the confidences of a row of batches, in their order."""
        shares = np.clip(shares, 0.0, 1.0)
        for kept in (self.first, self._of_round):
            new = np.flatnonzero(np.isnan(kept[places]))[::-1]  # backwards: the first of a sample is written last
            kept[places[new]] = shares[new]
        self.confidence.note(places, shares)

    def end_round(self, model: str, rules: StateRules) -> None:
        """Let the first word on each sample since the last call count as `model`'s, which had not trained on it yet."""
        touched = np.flatnonzero(~np.isnan(self._of_round))
        if len(touched):
            shares = self._of_round[touched]
            self.states = scored(self.states, model, touched, shares, float(np.median(shares)), rules)
            self._of_round[touched] = np.nan

    def stay(self, places: SampleNumbers, least: float) -> tuple[float, float] | None:
        """Confidence before and after a stay at some samples, which then begins anew; None until it saw enough."""
        first = self.first[places]
        seen = ~np.isnan(first)
        if not len(places) or seen.mean() < least:
            return None
        before, after = float(first[seen].mean()), self.confidence.mean(places)
        self.first[places] = np.nan
        return before, after

    def carried(self, old: Keys, new: Keys) -> Scores:
        """The same of the samples `new` as far as they were among `old`."""
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
        judged: list[NDArray[Any]] = [states.sure, states.failing, states.level, states.quarantined]
        return [self.confidence.values, self.first, self._of_round, states.confidence, *judged]

    def arrays(self) -> Arrays:
        """All that `restored` needs."""
        columns = {f"{number}": np.nan_to_num(column, nan=UNSEEN) for number, column in enumerate(self._columns())}
        return {**columns, "models": np.array([model.encode() for model in self.states.models], f"S{MODEL_CHARS}")}


def restored(arrays: Mapping[str, NDArray[Any]]) -> Scores:
    """What `arrays` was taken of; ValueError when it is none."""
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
