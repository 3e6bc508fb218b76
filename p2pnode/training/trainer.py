"""Local steps: from weights to weights on this node's own samples. Heavy: it never runs on the event loop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compression.weights import MAX_UNITS, UNIT, Floats
from ..shards.rows import Rows
from ..storage.checkpoints import Arrays
from ..tasks.data import Data
from ..tasks.errors import task_errors
from ..tasks.task import Evaluation, Samples, Task, length
from ..wire.errors import Diverged, LocalProblem, TaskProblem
from .batches import seed_from
from .host import ModelHost
from .input_statistics import fit_statistics
from .pool import SamplePool, read_pool_state
from .stepper import as_array

LARGEST_WEIGHT = MAX_UNITS * UNIT
SMOOTHING = 0.8
UNREADABLE_BATCHES = 16  # in a row, until training gives up
STATISTICS_BATCHES = 16  # of own samples, on which the statistics of BatchNorm are estimated


@dataclass(frozen=True)
class TrainResult:
    """The result of some local steps."""

    weights: Floats
    loss: float  # mean over the steps, each before its update
    steps: int
    samples: int
    seconds: float

    def then(self, later: TrainResult) -> TrainResult:
        """These steps and the `later` ones that continued them, as one result."""
        steps = self.steps + later.steps
        loss = (self.loss * self.steps + later.loss * later.steps) / max(1, steps)
        return TrainResult(later.weights, loss, steps, self.samples + later.samples, self.seconds + later.seconds)


class Trainer:
    """One node's training: its samples, optimizer, order of batches and random numbers, on a model host it may share.

    What `steps` returns depends only on the host, the seed, the samples, the weights given and the steps done before; a
    trainer restored from `state` continues bit for bit on a CPU. Two threads must not use one trainer at once; they may
    use two trainers of one host.
    """

    def __init__(
        self,
        model_host: ModelHost,
        samples: Rows | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        declared_speed: float | None = None,
        brake: Callable[[], bool] = lambda: False,
    ) -> None:
        """Trains on the given rows of the host's data, or all of them. A `declared_speed` replaces measuring."""
        self.model_host = model_host
        self.steps_done = 0
        self.speed = declared_speed or 0.0  # local steps per second, smoothed; 0 before the first
        self.brake = brake  # called after each step: it may wait, and True ends the steps
        self.keeps_gradient = False
        self.last_gradient: Floats | None = None  # of the last local step, if `keeps_gradient`
        self._shares = torch.empty(0)
        self._declared = declared_speed
        self._seed = seed
        self._clock = clock
        self.pool = SamplePool(model_host, seed)
        self._seen: list[tuple[Tensor, Tensor]] = []  # places and losses of the batches of these steps
        self._own_confidence = type(model_host.task).confidence is not Task.confidence
        self._buffers = {name: buffer.clone() for name, buffer in model_host.buffers.items()}
        self.reset_optimizer()
        self.use(model_host.rows if samples is None else samples)

    @property
    def samples(self) -> int:
        """The number of samples that this node trains on."""
        return self.pool.available

    @property
    def pace(self) -> tuple[int, int, float]:
        """Local steps done, samples, and local steps per second."""
        return self.steps_done, self.samples, self.speed

    def use(self, samples: Rows) -> None:
        """Trains on these rows of the data from now on. Does nothing when they are the same as before."""
        self.pool.use(samples)

    def reset_optimizer(self) -> None:
        """Forgets the optimizer's moments, for example on a change of lineage."""
        self._stepper = self.model_host.stepper()

    def steps(self, weights: Floats, count: int, at: int | None = None, rate: float = 1.0) -> TrainResult:
        """Does `count` local steps from `weights`, which do not change; fewer, but at least one, if `brake` ends them.

        `at` is the run's step number of the first one, for the task's schedule (default: this trainer's own steps);
        `rate` is a further factor on the learning rate. Raises Diverged when a loss or gradient is not finite, or a
        weight leaves the range that can be shared. The weights given are then the last good ones, the optimizer is
        reset, and the next call continues with the batches after the bad one.
        """
        if not self.samples:
            raise LocalProblem("this node has no samples to train on; give it some with --data, or wait for shards")
        with self.model_host.lock, self.model_host.randomness(seed_from(self._seed, "steps", self.steps_done)):
            begun = self._clock()
            self._borrow(weights)
            self.model_host.model.train()
            total, first = 0.0, self.steps_done if at is None else at
            for done in range(count):
                total += self._step(first + done, rate, done)
                if self.brake():
                    count = done + 1
                    break
            self._check_weights(count, total)
            self._note_confidences()
            if self.keeps_gradient:
                self.last_gradient = np.array(self.model_host.gradient.cpu().numpy(), np.float32, copy=True)
            self._give_back()
            seconds = count / self._declared if self._declared else self._clock() - begun
            self._measure(count, seconds)
            return TrainResult(
                self.model_host.take(), total / max(1, count), count, count * self.pool.batch_size, seconds
            )

    def _step(self, at: int, rate: float, done: int) -> float:
        model_host = self.model_host
        model_host.gradient.zero_()
        value = self._descend() if model_host.per_sample else self._descend_by_mean()
        if not math.isfinite(value) or not math.isfinite(model_host.gradient.sum().item()):
            what = "loss" if not math.isfinite(value) else "gradient"
            self._diverged(f"the {what} was not finite", done, value)
        self._stepper.step(rate * model_host.task.rate(at))
        self.steps_done += 1
        return value

    def _descend(self) -> float:
        """The gradient of the next batch's weighted mean loss. The losses are kept, for the samples' confidences."""
        places, weights, batch = self._next_batch()
        with task_errors(self.model_host.task, "losses"):
            losses = self.model_host.losses(batch)
            if losses.shape != self._shares.shape:  # checking at every step would take too long
                self.model_host.check_losses(losses, batch)
                self._shares = torch.full_like(losses, 1 / len(losses), requires_grad=False)
            shares = self._shares if weights is None else self._shares * weights.to(losses)
            losses.backward(shares)  # type: ignore[no-untyped-call]
            plain = losses.detach()
            judged = self.model_host.task.confidence(plain, batch) if self._own_confidence else plain
        self._seen.append((places, judged))
        return torch.dot(plain, shares).item()

    def _descend_by_mean(self) -> float:
        """The same for a task without losses of single samples; there are no weights then."""
        with task_errors(self.model_host.task, "loss"):
            loss = self.model_host.loss(self._next_batch()[2])
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

    def _next_batch(self) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """The next places, the weights of their losses, and their samples, without rows that cannot be read."""
        for _ in range(UNREADABLE_BATCHES):
            places, weights = self.pool.next()
            with task_errors(self.model_host.task, "data"):
                batch, kept = self.pool.readable(places)
            if kept is None:
                return places, weights, batch
            if len(kept):
                return places[kept], None if weights is None else weights[kept], batch
        task, rows = self.model_host.task, self.pool.row_numbers(places).tolist()
        why = self.model_host.data.problem(rows[0])
        raise TaskProblem(
            f"task {task.name}: data() gives rows that cannot be read, the last {len(rows)} of them: {why}"
        )

    def _note_confidences(self) -> None:
        """Passes the confidences of the steps' samples to the pool, all at once."""
        seen, self._seen = self._seen, []
        if seen:
            judged = torch.cat([judged for _, judged in seen]).float()
            shares = judged if self._own_confidence else torch.exp(-judged)
            self.pool.note(torch.cat([places for places, _ in seen]).numpy(), shares.cpu().numpy())

    def _check_weights(self, count: int, loss: float) -> None:
        low, high = (bound.item() for bound in torch.aminmax(self.model_host.weights))
        if not -LARGEST_WEIGHT < low <= high < LARGEST_WEIGHT:
            self._diverged(f"a weight left ±{LARGEST_WEIGHT:.0f}, the range that can be shared,", count, loss)

    def _diverged(self, what: str, steps: int, loss: float) -> NoReturn:
        self._seen.clear()
        self.reset_optimizer()
        remedy = "if it happens again, lower the task's learning_rate"
        raise Diverged(f"{what} after {self.steps_done} local steps; {remedy}", steps, loss)

    def evaluate(self, weights: Floats, samples: Samples | Data | None = None) -> Evaluation:
        """How good `weights` are on the task's test data, or on `samples`. Training is not affected."""
        with self.fitted(weights):
            return self.model_host.evaluate(self.model_host.test if samples is None else samples)

    def confidence_in(self, weights: Floats, columns: Samples) -> NDArray[np.float32]:
        """The confidence of `weights` in samples of others; ValueError when these cannot be trained on."""
        model_host = self.model_host
        with self.borrowed(weights), torch.no_grad():
            model_host.model.eval()
            batch = {name: column.to(model_host.device) for name, column in columns.items()}
            try:
                losses = model_host.losses(batch) if model_host.per_sample else model_host.loss(batch)
                if model_host.per_sample:
                    model_host.check_losses(losses, batch)
                if not bool(torch.isfinite(losses).all()):
                    raise ValueError("their loss is not finite")
                shares = (
                    model_host.task.confidence(losses, batch)
                    if model_host.per_sample
                    else losses.new_full((0,), math.nan)
                )
            except LocalProblem:
                raise
            except Exception as error:  # a peer's bad samples must not stop this node
                raise ValueError(f"{type(error).__name__}: {str(error)[:120]}") from None
        found: NDArray[np.float32] = shares.float().cpu().numpy()
        return found

    @contextlib.contextmanager
    def borrowed(self, weights: Floats) -> Iterator[None]:
        """Holds the model host with `weights` and this trainer's buffers loaded. Training is not affected."""
        with self.model_host.lock, self.model_host.randomness(seed_from(self._seed, "evaluate")):
            self._borrow(weights)
            yield

    @contextlib.contextmanager
    def fitted(self, weights: Floats) -> Iterator[None]:
        """Like `borrowed`, with the statistics of inputs (BatchNorm) estimated for `weights` on some own samples.

        Evaluation and export both use the model like this, so that what is shown is what is exported.
        """
        with self.borrowed(weights):
            self._fit_statistics()
            yield

    def gradients_at(self, points: Sequence[Floats]) -> list[Floats]:
        """The gradients at some weights, all on the next batch. Training is not affected."""
        if not self.samples:
            raise LocalProblem("this node has no samples to measure a gradient on")
        with self.model_host.lock:
            places = self.pool.peek()
            return [self._gradient_at(weights, places) for weights in points]

    def _gradient_at(self, weights: Floats, places: Tensor) -> Floats:
        model_host = self.model_host
        with (
            model_host.randomness(seed_from(self._seed, "slopes", self.steps_done)),
            task_errors(model_host.task, "loss"),
        ):
            self._borrow(weights)
            model_host.model.train()
            model_host.gradient.zero_()
            model_host.loss(self.pool.batch(places)).backward()  # type: ignore[no-untyped-call]
            return np.array(model_host.gradient.cpu().numpy(), np.float32, copy=True)

    def _fit_statistics(self) -> None:
        """Estimates statistics of inputs on own samples; nothing else in the model changes."""
        host = self.model_host
        if not host.norms:
            return
        with task_errors(host.task, "loss"):
            fitted = fit_statistics(host.model, host.norms, self._spread_batches(STATISTICS_BATCHES), host.loss)
        changed = {id(buffer) for module in fitted for buffer in module.buffers()}
        self._load_buffers(name for name, buffer in host.buffers.items() if id(buffer) not in changed)

    def _spread_batches(self, count: int) -> Iterator[dict[str, Tensor]]:
        """Up to `count` batches, each from all over the samples: data are often sorted by class.

        A node that has no samples at the moment takes those of the task's data.
        """
        available, size = len(self.pool) or self.model_host.samples, self.model_host.task.batch_size
        chosen = torch.from_numpy(np.linspace(0, available - 1, min(available, count * size)).astype(np.int64))
        batches = -(-len(chosen) // size)
        for number in range(batches):
            places = chosen[number::batches]
            batch = self.pool.batch(places) if len(self.pool) else self.model_host.batch(places)
            if length(batch):  # some of its rows could be read
                yield batch

    def _borrow(self, weights: Floats) -> None:
        """Loads this trainer's weights and buffers into the model host."""
        self.model_host.put(weights)
        self._load_buffers(self._buffers)

    def _load_buffers(self, names: Iterable[str]) -> None:
        there = self.model_host.buffers
        for name in names:
            there[name].copy_(self._buffers[name])

    def _give_back(self) -> None:
        for name, buffer in self.model_host.buffers.items():
            self._buffers[name].copy_(buffer.detach())

    def _measure(self, count: int, seconds: float) -> None:
        if count and seconds > 0 and not self._declared:
            now = count / seconds
            self.speed = now if self.speed == 0 else SMOOTHING * self.speed + (1 - SMOOTHING) * now

    def state(self) -> Arrays:
        """All that `restore` needs, as arrays. Weights and samples are saved elsewhere."""
        counts = np.array([self.steps_done, self.pool.position], np.int64)
        arrays: Arrays = {"counts": counts, "speed": np.array(self.speed)}
        arrays.update({f"pool/{name}": array for name, array in self.pool.state().items()})
        arrays.update({f"optimizer/{name}": array for name, array in self._stepper.arrays().items()})
        arrays.update({f"buffer/{name}": as_array(buffer) for name, buffer in self._buffers.items()})
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continues from `state`; ValueError, and no change, when the arrays belong to another model."""
        if not {"counts", "speed"} <= set(arrays) or arrays["counts"].shape != (2,):
            raise ValueError("the counts are missing")
        buffers = _under("buffer/", arrays)
        shapes = {name: tuple(buffer.shape) for name, buffer in self._buffers.items()}
        if {name: found.shape for name, found in buffers.items()} != shapes:
            raise ValueError("the buffers belong to another model")
        pool = read_pool_state(_under("pool/", arrays))
        self._stepper.load(_under("optimizer/", arrays))
        for name, found in buffers.items():
            self._buffers[name].copy_(torch.from_numpy(np.array(found)))
        self.steps_done = int(arrays["counts"][0])
        self.speed = self._declared or float(arrays["speed"])
        self.pool.restore(pool, int(arrays["counts"][1]))


def _under(folder: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    return {name.removeprefix(folder): array for name, array in arrays.items() if name.startswith(folder)}
