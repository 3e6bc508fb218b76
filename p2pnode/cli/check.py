"""`check TASK`: tries out a task and prints whether it can be trained together, and at what cost."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compression.codec import encode_delta
from ..compression.residual import make_delta, record
from ..compression.weights import MAX_UNITS, UNIT, Floats, layout_of, read_weights
from ..config.options import DEFAULT_TASK, TrainOptions
from ..jobs.model.own_shards import OFFERED_BYTES, OFFERED_SAMPLES
from ..tasks.data import Data, as_data
from ..tasks.errors import method_place, task_errors
from ..tasks.find import load_task
from ..tasks.task import Evaluation, Samples, Task, has_sample_losses, length
from ..training.host import BYTES_PER_PARAMETER, ModelHost, build_model, checked_layout
from ..training.threads import choose_threads
from ..training.trainer import Trainer
from ..watch.text import size
from ..wire.errors import Diverged, LocalProblem, TaskProblem
from .doctor import Finding, finding_line
from .reports import print_json


def losses_findings(model_host: ModelHost, batch: Samples) -> Iterator[Finding]:
    """Checks the losses of single samples: their mean must be the loss, and confidences must lie from 0 to 1."""
    task = model_host.task
    if model_host.data.is_stream and has_sample_losses(task):
        return
    if not model_host.per_sample:
        words = "loss() says nothing about single samples, so hard and wrong ones are not found"
        remedy = "override losses(), which gives one number for each sample, instead of loss(), which gives their mean"
        yield Finding("losses", "warning", words, remedy)
        return
    with task_errors(task, "losses"), torch.no_grad():
        with model_host.randomness(0):
            losses = model_host.losses(batch)
        model_host.check_losses(losses, batch)
        with model_host.randomness(0):
            mean = model_host.loss(batch).item()
        shares = task.confidence(losses, batch)
    if not math.isclose(losses.mean().item(), mean, rel_tol=1e-3, abs_tol=1e-6):
        words = f"losses() have a mean of {losses.mean().item():.4g}, and loss() is {mean:.4g}"
        yield Finding("losses", "problem", words, "leave loss() out: it is the mean of losses()")
    elif shares.shape != losses.shape or not bool(((shares >= 0) & (shares <= 1)).all()):
        words = "confidence() must give a number from 0 to 1 for each sample"
        yield Finding("losses", "problem", words, "leave it out unless the loss is no likelihood")


DENSITY = 0.005
METHODS = {  # in which method of a task the fault lies that a check finds
    "model": "model", "init": "model", "data": "data", "stream": "data", "probe": "probe", "loss": "loss",
    "losses": "losses", "learning": "loss", "evaluate": "evaluate",
}  # fmt: skip
SMALL_BATCH_STEPS = 30
SLOW_STEP = 2.0  # seconds
LOOKED_AT = 1024  # samples whose values are examined,
LOOKED_AT_IN_READING = 256  # where each of them has to be read
SAME_SAMPLES = 32  # of a stream, by which two nodes' readings are compared


@dataclass
class Examination:
    """The task under examination, its model once it is built, and the figures that the checks find."""

    task: Task
    device: str
    facts: dict[str, object] = field(default_factory=dict)
    _model_host: ModelHost | None = None

    @property
    def model_host(self) -> ModelHost:
        if self._model_host is None:
            self._model_host = ModelHost(self.task, self.device)
            choose_threads(self._model_host, seconds=0.5)
        return self._model_host


Check = Callable[[Examination], Iterator[Finding]]


def check_and_print(options: TrainOptions, as_json: bool) -> int:
    """Check a task, print the findings, and return the exit code: 1 when there is a problem.

    UsageError when there is no such task.
    """
    source = None if options.data is None else str(options.data)
    task = load_task(options.task or DEFAULT_TASK, options.task_options, source)
    findings, facts = check_task(task, options.device)
    fit = all(finding.verdict != "problem" for finding in findings)
    if as_json:
        print_json({"ok": fit, "task": task.name, "checks": findings, "facts": facts})
    else:
        print("\n".join(finding_line(finding) for finding in findings))
    return 0 if fit else 1


def check_task(task: Task, device: str = "cpu") -> tuple[list[Finding], dict[str, object]]:
    """All findings in order and the figures behind them. Without a model or data the checks end there."""
    examination = Examination(task, device)
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            findings.extend(_placed(task, finding) for finding in check(examination))
        except (TaskProblem, Diverged, LocalProblem) as problem:
            if any(finding.check == "loss" and finding.verdict == "problem" for finding in findings):
                findings.append(Finding(name, "unchecked", "it needs the loss", "mend that first"))
                continue
            what, _, remedy = str(problem).partition("; ")
            findings.append(_placed(task, Finding(name, "problem", what.removeprefix(f"task {task.name}: "), remedy)))
            if name in ("model", "data"):
                break
    return findings, examination.facts


def _placed(task: Task, finding: Finding) -> Finding:
    """The finding; a problem names the file and line where the task's author should look."""
    if finding.verdict != "problem" or finding.check not in METHODS or re.search(r"\.py:\d+", finding.text):
        return finding
    method = METHODS[finding.check]
    if method == "loss" and type(task).loss is Task.loss:
        method = "losses"
    return msgspec.structs.replace(finding, text=f"{finding.text} ({method_place(task, method)})")


def _model(examination: Examination) -> Iterator[Finding]:
    """Checks the model's size, and that each call makes the same model."""
    task, model_host = examination.task, examination.model_host
    again, other = build_model(task, 0), build_model(task, 1)
    if checked_layout(task, again) != model_host.layout or checked_layout(task, other) != model_host.layout:
        yield Finding(
            "model", "problem", "model() gives other shapes from call to call", "make its sizes depend on options only"
        )
        return
    everything = list(again.parameters())
    frozen = sum(part.numel() for part in everything if not part.requires_grad)
    tied = sum(part.numel() for part in again.parameters() if part.requires_grad) - model_host.layout.size
    tied += sum(1 for _ in again.named_parameters(remove_duplicate=False)) > len(everything)
    count = model_host.layout.size
    examination.facts.update(parameters=count, frozen=frozen, tied=bool(tied), bytes=4 * count)
    notes = [f"{frozen:,} frozen stay as they are"] if frozen else []
    notes += ["tied weights count once"] if tied else []
    words = f"{count:,} parameters in {len(model_host.layout.parameters)} tensors ({size(4 * count)}), "
    words += f"about {size(BYTES_PER_PARAMETER * count)} of memory to train" + "".join(f"; {note}" for note in notes)
    yield Finding("model", "ok", words)
    yield from _initial_weights(model_host.genesis, read_weights(again, layout_of(again)))
    if model_host.norms:
        yield Finding(
            "batchnorm", "warning", "BatchNorm keeps statistics of each node's own data, which are not shared",
            "use GroupNorm or LayerNorm where nodes have unlike data",
        )  # fmt: skip


def _initial_weights(first: Floats, second: Floats) -> Iterator[Finding]:
    if not np.isfinite(first).all():
        yield Finding("init", "problem", "the initial weights are not all finite numbers", "look at the model's init")
    elif not np.array_equal(first, second):
        remedy = "draw initial weights with torch's default generator only"
        yield Finding("init", "problem", "the same seed gives other initial weights", remedy)
    elif np.abs(first).max() >= MAX_UNITS * UNIT:
        remedy = "scale the weights down and the activations up"
        yield Finding("init", "problem", f"a weight is beyond ±{MAX_UNITS * UNIT:.0f}, more than can be shared", remedy)
    else:
        yield Finding("init", "ok", "the same seed gives the same weights")


def _data(examination: Examination) -> Iterator[Finding]:
    """Checks the samples' values, and that each call gives the same samples; says where they are."""
    task, data = examination.task, examination.model_host.data
    shapes = ", ".join(f"{name} {tuple(column.shape[1:])} {column.dtype}" for name, column in data.empty.items())
    test = len(examination.model_host.test)
    examination.facts.update(samples=None if data.is_stream else len(data), test_samples=test)
    with task_errors(task, "data"):
        begun = time.perf_counter()
        some = _some(data)
        seconds = (time.perf_counter() - begun) / max(1, length(some))
        changed = not data.is_stream and not _equal(some, _some(as_data(task.data())))
    bad = [name for name, column in some.items() if not torch.isfinite(column.float()).all()]
    if bad:
        yield Finding("data", "problem", f"{' and '.join(bad)} hold values that are not finite", "clean the data")
    elif changed:
        yield Finding("data", "problem", "data() gives other samples when called again", "fix its seed and its order")
    elif not data.is_stream and len(data) < task.batch_size:
        words = f"{len(data)} samples are fewer than one batch of {task.batch_size}"
        yield Finding("data", "warning", words, "lower batch_size or bring more data")
    else:
        count = "a stream" if data.is_stream else f"{len(data):,} samples"
        yield Finding("data", "ok", f"{count} to train on, {test:,} samples to test on: {shapes}")
    yield _where(examination, seconds)
    if data.is_stream and _equal(*(data.reader(seed).first(SAME_SAMPLES) for seed in (1, 2))):
        words = "every node reads the same samples of the stream in the same order"
        remedy = "order or choose them in __iter__ by torch's random numbers, or define set_epoch(number)"
        yield Finding("stream", "warning", words, remedy)


def _where(examination: Examination, seconds: float) -> Finding:
    """Says where the samples are, what that means, and how much memory they take."""
    task, host = examination.task, examination.model_host
    data, each = host.data, host.data.sample_bytes
    held = each * (len(data) if data.in_memory else 2 * task.batch_size)
    held += host.test.sample_bytes * (len(host.test) if host.test.in_memory else task.evaluation_batch)
    examination.facts.update(data=data.kind, sample_bytes=each, data_memory_bytes=held)
    if data.is_stream:
        words = "a stream: each node reads it by its own seed; no shards, nothing is known of single samples"
        return Finding("memory", "ok", f"{words}; {size(held)} at a time")
    if data.in_memory:
        return Finding("memory", "ok", f"in memory, {size(held)}; shards may travel with --share-data")
    examination.facts["seconds_per_row"] = seconds
    labels = "" if host.labels is not None else "; no labels (`targets`), so no splits by label"
    offered = min(len(data), OFFERED_SAMPLES, max(1, OFFERED_BYTES // max(1, each)))
    shards = "shards may travel" if offered == len(data) else f"shards of {offered:,} samples may travel"
    words = f"read by index, {seconds * 1000:.2g} ms a row, {size(each * len(data))} in all and {size(held)} at a time"
    return Finding("memory", "ok", f"{words}; {shards} with --share-data{labels}")


def _probe(examination: Examination) -> Iterator[Finding]:
    task = examination.task
    with task_errors(task, "probe"):
        first, second = task.probe(), task.probe()
        count = length(first)
    examination.facts["probe"] = count
    if not _equal(first, second):
        yield Finding("probe", "problem", "probe() gives other inputs when called again", "take fixed ones, not random")
    elif not 16 <= count <= 1024:
        yield Finding("probe", "warning", f"{count} probe inputs", "about 128 compare models well and cheaply")
    else:
        yield Finding("probe", "ok", f"{count} inputs, the same each time")


def _loss(examination: Examination) -> Iterator[Finding]:
    """Checks that the loss is one finite number with a gradient, and that it leaves the batch alone."""
    task, model_host = examination.task, examination.model_host
    batch = model_host.batch(torch.arange(min(task.batch_size, model_host.samples)))
    before = {name: column.clone() for name, column in batch.items()}
    model_host.put(model_host.genesis)
    model_host.gradient.zero_()
    model_host.model.train()
    with task_errors(task, "loss"), model_host.randomness(0):
        loss: object = model_host.loss(batch)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.ndim > 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        yield Finding("loss", "problem", f"loss() must give one number as a tensor, not {what}", "return the mean")
        return
    if not loss.requires_grad:
        yield Finding("loss", "problem", "loss() has no gradient", "compute it with torch, without no_grad or item()")
        return
    if not math.isfinite(loss.item()):
        yield Finding("loss", "problem", f"the first loss is {loss.item()}", "look at inputs and initial weights")
        return
    with task_errors(task, "loss"):
        loss.backward()  # type: ignore[no-untyped-call]
    if not _equal(before, batch):
        yield Finding("loss", "problem", "loss() changes the batch it is given", "work on a copy")
    examination.facts["losses"] = model_host.per_sample
    yield from losses_findings(model_host, batch)
    examination.facts["first_loss"] = loss.item()
    yield Finding("loss", "ok", f"{loss.item():.4g} on the first batch")
    unused = [name for name, part in model_host.model.named_parameters() if part.requires_grad and not part.grad.any()]  # type: ignore[union-attr]
    if unused:
        named = ", ".join(unused[:3]) + (" …" if len(unused) > 3 else "")
        yield Finding("gradient", "warning", f"no gradient reaches {named}", "remove what is unused, or freeze it")


def _learning(examination: Examination) -> Iterator[Finding]:
    """Trains on one small batch again and again: its loss must fall. Also measures a step and a delta."""
    task, model_host = examination.task, examination.model_host
    few = np.arange(min(task.batch_size, model_host.samples))
    trainer, weights, losses, seconds = _repeating(model_host, few), model_host.genesis, [], []
    begun = time.perf_counter()
    for _ in range(SMALL_BATCH_STEPS):
        result = trainer.steps(weights, 1, at=10_000)
        weights = result.weights
        losses.append(result.loss)
        seconds.append(result.seconds)
        if time.perf_counter() - begun > 10 * SLOW_STEP and len(losses) >= 5:
            break
    fall = f"from {losses[0]:.4g} to {losses[-1]:.4g} in {len(losses)} steps on one small batch"
    if losses[-1] < losses[0]:
        yield Finding("learning", "ok", f"the loss falls {fall}")
    else:
        yield Finding("learning", "problem", f"the loss does not fall ({fall})", "lower learning_rate; look at loss()")
    yield from _cost(examination, sorted(seconds)[len(seconds) // 2])
    yield _delta(examination, weights)


def _repeating(model_host: ModelHost, few: NDArray[np.int64]) -> Trainer:
    """A trainer that trains on the same few samples again and again, also of a stream."""
    if not model_host.data.is_stream:
        return Trainer(model_host, few)
    columns, task = model_host.data.reader(0).first(len(few)), copy.copy(model_host.task)
    vars(task)["data"] = lambda: columns
    return Trainer(ModelHost(task, str(model_host.device)), few)


def _cost(examination: Examination, per_step: float) -> Iterator[Finding]:
    examination.facts["seconds_per_step"] = per_step
    words = (
        f"{per_step * 1000:.3g} ms a step of {min(examination.task.batch_size, examination.model_host.samples)} samples"
    )
    words += f" on {examination.model_host.device}"
    slow = per_step > SLOW_STEP
    yield Finding("cost", "warning" if slow else "ok", words, "a smaller batch_size or model" if slow else "")


def _delta(examination: Examination, weights: Floats) -> Finding:
    """Measures what a round publishes, by encoding it."""
    genesis = examination.model_host.genesis
    count = max(1, round(DENSITY * len(genesis)))
    delta, _ = make_delta(record(np.zeros(len(genesis), np.int32), weights - genesis, 1.0), count, 2, 1.0)
    coded = len(encode_delta(delta))
    examination.facts["delta_bytes"] = coded
    times = 4 * len(genesis) / max(1, coded)
    return Finding(
        "delta", "ok", f"{size(coded)} a round at {DENSITY:.1%} of the weights, {times:,.0f} × less than all"
    )


def _evaluate(examination: Examination) -> Iterator[Finding]:
    task, model_host = examination.task, examination.model_host
    trainer = Trainer(model_host)
    begun = time.perf_counter()
    found: object = trainer.evaluate(model_host.genesis)
    seconds = time.perf_counter() - begun
    if not isinstance(found, Evaluation):
        words = f"evaluate() must give an Evaluation, not {type(found).__name__}"
        yield Finding("evaluate", "problem", words, "return Evaluation(loss, accuracy or None, samples)")
        return
    if not math.isfinite(found.loss):
        yield Finding("evaluate", "problem", f"the test loss is {found.loss}", "look at test_data() and evaluate()")
    else:
        accuracy = "" if found.accuracy is None else f", accuracy {found.accuracy:.1%}"
        examination.facts["seconds_per_evaluation"] = seconds
        words = f"untrained: loss {found.loss:.4g}{accuracy}, {seconds:.2g} s for {found.samples:,} samples"
        yield Finding("evaluate", "ok", words)
        yield from _accuracy(task, model_host, found)
    if _uses_chance(task, model_host):
        yield Finding("evaluate", "warning", "the same weights get another loss each time", "leave out randomness")


def _accuracy(task: Task, model_host: ModelHost, found: Evaluation) -> Iterator[Finding]:
    """Says why there is no accuracy, and how to get one."""
    if found.accuracy is not None:
        return
    remedy = "override right(outputs, batch): it counts the right answers of a batch"
    with task_errors(task, "labels"):
        classes = task.labels(model_host.test.first(1)) is not None
    if classes and type(task).right is Task.right:
        words = "no accuracy, though there are classes: the model's outputs are not one row of scores for each sample"
        yield Finding("accuracy", "warning", words, remedy)
    else:
        words = "none: right() gives None, because the samples have no classes (y, whole numbers)"
        yield Finding("accuracy", "ok", words if type(task).right is Task.right else "none: right() gives None")


def _uses_chance(task: Task, model_host: ModelHost) -> bool:
    few, model = model_host.on_device(model_host.test.first(64)), model_host.model
    model.eval()
    with task_errors(task, "evaluate"), torch.no_grad():
        return task.evaluate(model, few).loss != task.evaluate(model, few).loss


def _some(data: Data) -> dict[str, Tensor]:
    """Samples from all over the data, to examine without reading everything."""
    most = min(len(data), LOOKED_AT if data.in_memory else LOOKED_AT_IN_READING)
    return data.rows(torch.from_numpy(np.linspace(0, len(data) - 1, most).astype(np.int64)))


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


CHECKS: dict[str, Check] = {
    "model": _model,
    "data": _data,
    "probe": _probe,
    "loss": _loss,
    "learning": _learning,
    "evaluate": _evaluate,
}
