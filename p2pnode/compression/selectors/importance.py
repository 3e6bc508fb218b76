"""Learned importance of a coordinate, 0..1: will the rounds to come push it further the way its residual points?

One small feed-forward network per layer maps the last four rounds' progress of a coordinate, and its residual, to an
importance. Target: ½ + ½·tanh(d·sign(e)/r), where d is the coordinate's progress in the *next* round, e its residual
now and r the layer's typical progress. Progress is minus the sum of a round's gradients (times a rate), so d·sign(e)
is the first-order decrease of the loss per unit sent, measured by the training itself at no cost: what the next round
takes back scores near 0, what it asks for again near 1.

Bounds: the history is four bytes a coordinate; networks see a few coordinates of each layer a round, and judge
candidates only. `learn` may run in a thread of its own: it replaces the networks in one assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..weights import UNIT, Floats, Units

HISTORY = 4  # rounds
HIDDEN = 8
SAMPLES = 64  # coordinates of a layer that are learned from, a round
RATE, MOMENTUM, PASSES = 0.1, 0.9, 4
_FINE, _FAR = 16, 127  # the history's grid: sixteenths of the layer's typical progress, at most 8 of it

Beside = Callable[[Callable[[], None]], None]  # runs small work where training does not wait for it


def inline(work: Callable[[], None]) -> None:
    """At once, in place: for simulations."""
    work()


@dataclass(frozen=True)
class Net:
    """A layer's network: tanh features in, HIDDEN tanh units, one sigmoid out. Frozen: learning makes another."""

    first: Floats  # (features + 1, HIDDEN), the bias last
    second: Floats  # (HIDDEN + 1,)

    def __call__(self, features: Floats) -> Floats:
        hidden = np.tanh(features @ self.first[:-1] + self.first[-1])
        out: Floats = 1 / (1 + np.exp(-(hidden @ self.second[:-1] + self.second[-1])))
        return out

    def slopes(self, features: Floats, targets: Floats) -> tuple[Floats, Floats]:
        """Of the mean cross-entropy, by the two weight arrays."""
        hidden = np.tanh(features @ self.first[:-1] + self.first[-1])
        wrong = (1 / (1 + np.exp(-(hidden @ self.second[:-1] + self.second[-1]))) - targets) / len(targets)
        second = np.append(wrong @ hidden, wrong.sum())
        back = np.outer(wrong, self.second[:-1]) * (1 - hidden**2)
        first = np.vstack([features.T @ back, back.sum(0)])
        return first.astype(np.float32), second.astype(np.float32)


@dataclass(frozen=True)
class ImportanceLesson:
    """What a round teaches one layer's network."""

    layer: int
    features: Floats
    targets: Floats


class LearnedImportance:
    """The history of one node's progress and the networks that judge by it."""

    def __init__(self, layers: Sequence[int], seed: int, beside: Beside = inline) -> None:
        self._borders = np.concatenate(([0], np.cumsum(layers)))
        self._rng = np.random.default_rng(seed)
        self._beside = beside
        self._past: list[npt.NDArray[np.int8]] = []  # newest first
        self._typical: Floats = np.zeros(len(layers), np.float32)
        self._nets = [_fresh(self._rng) for _ in layers]
        self._momenta = [(np.zeros_like(net.first), np.zeros_like(net.second)) for net in self._nets]
        self._asked: tuple[Indices, Floats, Floats] | None = None  # places, features, signs of the last round's samples
        self.lessons = 0

    def note(self, progress: Floats) -> None:
        """A round's progress: learn from what it says about the samples of the round before, and remember it."""
        scaled = np.empty(len(progress), np.int8)
        for layer, part in self._services():
            here = progress[part]
            typical = float(np.linalg.norm(here)) / len(here) ** 0.5
            self._typical[layer] = typical
            steps = here * np.float32(_FINE / max(typical, 1e-30))
            np.rint(steps, out=steps)
            np.clip(steps, -_FAR, _FAR, out=steps)
            scaled[part] = steps
        if self._asked is not None:
            places, features, signs = self._asked
            targets = 0.5 + 0.5 * np.tanh(scaled[places] * signs / _FINE)
            lessons = list(self._lessons(places, features, targets.astype(np.float32)))
            self._beside(lambda: self.learn(lessons))
        self._past = [scaled, *self._past[: HISTORY - 1]]

    def at(self, places: Indices, residual: Units) -> Floats:
        """The importance of coordinates (increasing), whose residuals are given; some of them are asked about later."""
        features, signs = self._features(places, residual)
        importance = np.empty(len(places), np.float32)
        for layer, part in self._spans(places):
            importance[part] = self._nets[layer](features[part])
        samples = self._samples(places)
        self._asked = places[samples], features[samples], signs[samples]
        return importance

    def learn(self, lessons: Sequence[ImportanceLesson]) -> None:
        """A few steps of gradient descent for each layer that has a lesson."""
        nets = list(self._nets)
        for lesson in lessons:
            net, (first, second) = nets[lesson.layer], self._momenta[lesson.layer]
            for _ in range(PASSES):
                down = net.slopes(lesson.features, lesson.targets)
                first, second = MOMENTUM * first - RATE * down[0], MOMENTUM * second - RATE * down[1]
                net = Net(net.first + first, net.second + second)
            nets[lesson.layer], self._momenta[lesson.layer] = net, (first, second)
        self._nets = nets
        self.lessons += len(lessons)

    def _features(self, places: Indices, residual: Units) -> tuple[Floats, Floats]:
        """Progress of late along the residual's sign, and the residual's size, each squeezed into ±1."""
        signs = np.sign(residual).astype(np.float32)
        features = np.zeros((len(places), HISTORY + 1), np.float32)
        for age, past in enumerate(self._past):
            features[:, age] = np.tanh(past[places] * signs / _FINE)
        layers = np.searchsorted(self._borders, places, side="right") - 1
        size = np.abs(residual) * UNIT / np.maximum(self._typical[layers], 1e-30)
        features[:, HISTORY] = np.tanh(np.log1p(size) / 4)
        return features, signs

    def _samples(self, places: Indices) -> npt.NDArray[np.int64]:
        chosen = [
            part.start + np.sort(self._rng.choice(length, min(SAMPLES, length), replace=False))
            for _, part in self._spans(places)
            if (length := part.stop - part.start)
        ]
        return np.concatenate(chosen) if chosen else np.empty(0, np.int64)

    def _lessons(self, places: Indices, features: Floats, targets: Floats) -> Iterator[ImportanceLesson]:
        for layer, part in self._spans(places):
            yield ImportanceLesson(layer, features[part], targets[part])

    def _services(self) -> Iterator[tuple[int, slice]]:
        for layer in range(len(self._borders) - 1):
            yield layer, slice(int(self._borders[layer]), int(self._borders[layer + 1]))

    def _spans(self, places: Indices) -> Iterator[tuple[int, slice]]:
        """Where in increasing `places` each layer's are; layers without any are left out."""
        cuts = np.searchsorted(places, self._borders).tolist()
        for layer, (start, end) in enumerate(pairwise(cuts)):
            if start < end:
                yield layer, slice(start, end)


def _fresh(rng: np.random.Generator) -> Net:
    """A network that calls everything half important until it has learned better."""
    first = rng.normal(0.0, 0.5, (HISTORY + 2, HIDDEN)).astype(np.float32)
    return Net(first, np.zeros(HIDDEN + 1, np.float32))
