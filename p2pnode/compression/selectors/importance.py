"""Learned importance of a coordinate, from 0 to 1: will the next rounds push it further in its residual's direction?

One small feed-forward network per layer maps a coordinate's progress in the last four rounds and its residual to an
importance. The target is ½ + ½·tanh(d·sign(e)/r), where d is the coordinate's progress in the *next* round, e its
residual now and r the layer's typical progress. Progress is minus the sum of a round's gradients (times a rate), so
d·sign(e) is the first-order decrease of the loss per unit sent. Training measures it at no cost: a change that the
next round takes back gets a target near 0, one that it repeats a target near 1.

The history takes four bytes per coordinate. The networks learn from a few coordinates of each layer per round and judge
candidates only. `learn` may run in another thread: it replaces the networks in one assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..selector import Background, run_now
from ..weights import UNIT, Floats, Units, norm

HISTORY = 4  # rounds
HIDDEN = 8
SAMPLES = 64  # coordinates of a layer that are learned from, a round
RATE, MOMENTUM, PASSES = 0.1, 0.9, 4
_FINE, _FAR = 16, 127  # the history's grid: sixteenths of the layer's typical progress, at most 8 of it


@dataclass(frozen=True)
class LayerNetwork:
    """A layer's network: tanh features, HIDDEN tanh units, one sigmoid. It is frozen; learning makes another."""

    first: Floats  # (features + 1, HIDDEN), the bias last
    second: Floats  # (HIDDEN + 1,)

    def __call__(self, features: Floats) -> Floats:
        hidden = np.tanh(features @ self.first[:-1] + self.first[-1])
        out: Floats = 1 / (1 + np.exp(-(hidden @ self.second[:-1] + self.second[-1])))
        return out

    def slopes(self, features: Floats, targets: Floats) -> tuple[Floats, Floats]:
        """The gradients of the mean cross-entropy with respect to the two weight arrays."""
        hidden = np.tanh(features @ self.first[:-1] + self.first[-1])
        wrong = (1 / (1 + np.exp(-(hidden @ self.second[:-1] + self.second[-1]))) - targets) / len(targets)
        second = np.append(wrong @ hidden, wrong.sum())
        back = np.outer(wrong, self.second[:-1]) * (1 - hidden**2)
        first = np.vstack([features.T @ back, back.sum(0)])
        return first.astype(np.float32), second.astype(np.float32)


@dataclass(frozen=True)
class ImportanceLesson:
    """The samples that one round gives to one layer's network."""

    layer: int
    features: Floats
    targets: Floats


class LearnedImportance:
    """The history of one node's progress, and the networks that judge by it."""

    def __init__(self, layers: Sequence[int], seed: int, background: Background = run_now) -> None:
        self._borders = np.concatenate(([0], np.cumsum(layers)))
        self._rng = np.random.default_rng(seed)
        self._background = background
        self._past: list[npt.NDArray[np.int8]] = []  # latest first
        self._typical: Floats = np.zeros(len(layers), np.float32)
        self._nets = [_fresh(self._rng) for _ in layers]
        self._momenta = [(np.zeros_like(net.first), np.zeros_like(net.second)) for net in self._nets]
        self._asked: tuple[Indices, Floats, Floats] | None = (
            None  # indices, features, signs of the last round's samples
        )
        self.lessons = 0

    def note(self, progress: Floats) -> None:
        """Takes a round's progress: learns what became of the previous round's samples, and remembers the progress."""
        scaled = np.empty(len(progress), np.int8)
        for layer, part in self._layers():
            here = progress[part]
            typical = norm(here) / len(here) ** 0.5
            self._typical[layer] = typical
            steps = here * np.float32(_FINE / max(typical, 1e-30))
            np.rint(steps, out=steps)
            np.clip(steps, -_FAR, _FAR, out=steps)
            scaled[part] = steps
        if self._asked is not None:
            indices, features, signs = self._asked
            targets = 0.5 + 0.5 * np.tanh(scaled[indices] * signs / _FINE)
            lessons = list(self._lessons(indices, features, targets.astype(np.float32)))
            self._background(lambda: self.learn(lessons))
        self._past = [scaled, *self._past[: HISTORY - 1]]

    def at(self, indices: Indices, residual: Units) -> Floats:
        """The importance of increasing indices with these residuals. Some of them become samples to learn from."""
        features, signs = self._features(indices, residual)
        importance = np.empty(len(indices), np.float32)
        for layer, part in self._spans(indices):
            importance[part] = self._nets[layer](features[part])
        samples = self._samples(indices)
        self._asked = indices[samples], features[samples], signs[samples]
        return importance

    def learn(self, lessons: Sequence[ImportanceLesson]) -> None:
        """A few steps of gradient descent for each layer that has a lesson."""
        nets = list(self._nets)
        for lesson in lessons:
            net, (first, second) = nets[lesson.layer], self._momenta[lesson.layer]
            for _ in range(PASSES):
                down = net.slopes(lesson.features, lesson.targets)
                first, second = MOMENTUM * first - RATE * down[0], MOMENTUM * second - RATE * down[1]
                net = LayerNetwork(net.first + first, net.second + second)
            nets[lesson.layer], self._momenta[lesson.layer] = net, (first, second)
        self._nets = nets
        self.lessons += len(lessons)

    def _features(self, indices: Indices, residual: Units) -> tuple[Floats, Floats]:
        """Recent progress in the direction of the residual, and the size of the residual, each mapped to ±1."""
        signs = np.sign(residual).astype(np.float32)
        features = np.zeros((len(indices), HISTORY + 1), np.float32)
        for age, past in enumerate(self._past):
            features[:, age] = np.tanh(past[indices] * signs / _FINE)
        layers = np.searchsorted(self._borders, indices, side="right") - 1
        size = np.abs(residual) * UNIT / np.maximum(self._typical[layers], 1e-30)
        features[:, HISTORY] = np.tanh(np.log1p(size) / 4)
        return features, signs

    def _samples(self, indices: Indices) -> npt.NDArray[np.int64]:
        chosen = [
            part.start + np.sort(self._rng.choice(length, min(SAMPLES, length), replace=False))
            for _, part in self._spans(indices)
            if (length := part.stop - part.start)
        ]
        return np.concatenate(chosen) if chosen else np.empty(0, np.int64)

    def _lessons(self, indices: Indices, features: Floats, targets: Floats) -> Iterator[ImportanceLesson]:
        for layer, part in self._spans(indices):
            yield ImportanceLesson(layer, features[part], targets[part])

    def _layers(self) -> Iterator[tuple[int, slice]]:
        for layer in range(len(self._borders) - 1):
            yield layer, slice(int(self._borders[layer]), int(self._borders[layer + 1]))

    def _spans(self, indices: Indices) -> Iterator[tuple[int, slice]]:
        """The part of the increasing `indices` that is in each layer; layers without any are left out."""
        cuts = np.searchsorted(indices, self._borders).tolist()
        for layer, (start, end) in enumerate(pairwise(cuts)):
            if start < end:
                yield layer, slice(start, end)


def _fresh(rng: np.random.Generator) -> LayerNetwork:
    """A network that returns ½ for everything until it has learned."""
    first = rng.normal(0.0, 0.5, (HISTORY + 2, HIDDEN)).astype(np.float32)
    return LayerNetwork(first, np.zeros(HIDDEN + 1, np.float32))
