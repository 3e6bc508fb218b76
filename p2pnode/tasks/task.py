"""The contract of a task: a model, its data, its loss, and how it is evaluated.

A task is the one thing that a user writes. Subclass `Task`, define `model`, `data` and `test_data`, and override what
differs from a classifier trained with cross entropy:

    class Mine(Task):
        name = "mine"
        hidden = 32                                   # a public attribute is an option: hidden=64

        def model(self): return nn.Linear(4, 3)
        def data(self): return {"x": inputs, "y": classes}
        def test_data(self): return {"x": other_inputs, "y": other_classes}

Every method returns the same each time it is called (`model` up to torch's random numbers, which the caller seeds).
`loss` does not change the batch. The shapes of the model's parameters never change. Data are read-only and shared: many
trainers use the same tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..wire.errors import UsageError, suggestion
from ..wire.status import Figure
from .data import Data, TaskData, as_test_data
from .data import Samples as Samples
from .data import length as length
from .data import rows as rows
from .optimizers import Optimizer, Sgd

if TYPE_CHECKING:
    from .blocks import TaskBlocks
    from .generation import Generation

Option = bool | int | float | str

PROBE_INPUTS = 128
LARGEST = 1 << 40  # magnitude of an integer option, since a run's founder may have chosen it


@dataclass(frozen=True)
class Evaluation:
    """How good weights are on some samples: the mean loss, and the share of right answers where there are answers."""

    loss: float
    accuracy: float | None
    samples: int


class Task:
    """Base class of all tasks; the module's docstring has the contract."""

    name: str = ""
    version: str = "1"  # change it when a run of the old task must not go on with the new one
    batch_size: int = 32
    learning_rate: float = 0.05
    evaluation_batch: int = 1024  # samples evaluated at a time
    bfloat16_on_cpu: bool = False  # use bfloat16 on processors that compute in it; on CUDA it is used anyway
    fingerprint_layers: tuple[str, ...] = ()  # modules compared on the probe; empty: the last hidden one
    LOCAL: ClassVar[frozenset[str]] = frozenset({"source"})  # options of a node, which a run does not set

    def __init__(self, **options: Option) -> None:
        """Sets public attributes by name; UsageError for one that does not exist, or a value of another type."""
        if not self.name:
            self.name = type(self).__name__.lower()
        known = option_defaults(type(self))
        for key, value in options.items():
            if key not in known:
                raise UsageError(f"task {self.name} has no option {key[:60]!r}; {suggestion(key, known)}")
            setattr(self, key, as_option(self.name, key, value, known[key]))

    @property
    def options(self) -> dict[str, Option]:
        """The options that differ from their defaults. A run's manifest contains them."""
        defaults = option_defaults(type(self))
        return {
            key: getattr(self, key)
            for key in sorted(defaults)
            if key not in self.LOCAL and getattr(self, key) != defaults[key]
        }

    @property
    def deltaset_settings(self) -> Mapping[str, float]:
        """Settings of the policy deltaset that suit this task. What the founder gives with --set counts more."""
        return {}

    def model(self) -> nn.Module:
        """A new model, initialised with torch's default random generator."""
        raise NotImplementedError(f"task {self.name} has no model()")

    def data(self) -> TaskData:
        """All samples to train on, as tensors or as a map-style data set. Nodes may divide them among themselves."""
        raise NotImplementedError(f"task {self.name} has no data()")

    def test_data(self) -> TaskData:
        """Samples that no node trains on."""
        raise NotImplementedError(f"task {self.name} has no test_data()")

    def losses(self, model: nn.Module, batch: Samples) -> Tensor:
        """The loss of each sample of a batch.

        A task may override `loss` alone; then nothing is known about single samples.
        """
        outputs, labels = logits_of(model(batch["x"])), batch["y"]
        if outputs.ndim == 3 and outputs.shape[:2] == labels.shape:  # scores for each place of a sequence
            outputs = outputs.transpose(1, 2)
        labels = labels if labels.is_floating_point() else labels.long()
        each = functional.cross_entropy(outputs, labels, reduction="none")
        return each if each.ndim == 1 else each.flatten(1).mean(1)

    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        """The mean loss of a batch: the number that training reduces."""
        return self.losses(model, batch).mean()

    def confidence(self, losses: Tensor, batch: Samples) -> Tensor:
        """The model's confidence in each sample, 0 to 1: the probability of its label, or of a token of its text."""
        return torch.exp(-losses)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer | torch.optim.Optimizer:
        """The optimizer of the local steps: one of tasks/optimizers.py, which are fastest, or any of torch's."""
        return Sgd(self.learning_rate)

    def rate(self, step: int) -> float:
        """The factor on the optimizer's learning rate at a step of the run."""
        return 1.0

    def evaluate(self, model: nn.Module, samples: Samples) -> Evaluation:
        """Mean loss and accuracy in batches of bounded size. The caller sets evaluation mode and no_grad."""
        total, right, counted, count = 0.0, 0, True, length(samples)
        outputs: list[Any] = []
        hook = model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
        try:
            for start in range(0, count, self.evaluation_batch):
                batch = rows(samples, slice(start, start + self.evaluation_batch))
                outputs.clear()
                total += self.loss(model, batch).item() * length(batch)
                hits = _checked_hits(self.right(outputs[0], batch), length(batch)) if len(outputs) == 1 else None
                counted, right = counted and hits is not None, right + (hits or 0)
        finally:
            hook.remove()
        return Evaluation(total / max(1, count), right / count if counted and count else None, count)

    def right(self, outputs: Any, batch: Samples) -> int | None:
        """The number of right answers to a batch; None where answers cannot be right or wrong."""
        labels, outputs = self.labels(batch), logits_of(outputs)
        if labels is None or not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(labels):
            return None
        return int((outputs.argmax(1) == labels).sum())

    def blocks(self, model: nn.Module) -> TaskBlocks | None:
        """The model as layers between two ends; None where it cannot be cut. Kinds of work that share parts need it."""
        return None

    def piece_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        """The losses of the pieces of each sample (samples, pieces), such as the tokens of a text; their mean counts.

        Pieces are predicted one after the other, so a mixture of models may use what was seen of earlier ones.
        """
        return self.losses(model, batch)[:, None]

    def features(self, samples: Samples, size: int, prefix: int | None = None) -> Tensor | None:
        """What a router sees of each sample, at most `size` numbers that are not negative and can be added up.

        With a `prefix` only so many pieces from the beginning count: what is known before the rest is predicted. None:
        a router looks at the model's hidden states of the inputs instead.
        """
        return None

    def documents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The document that each sample is from, of data() and of test_data(); None: each is one of its own.

        Samples of one document are routed together, and numbers need only be different within one of the two.
        """
        return None

    def as_samples(self, prompt: str) -> Samples:
        """A prompt as a sample that a router can look at; UsageError where the task has no texts."""
        raise UsageError(f"task {self.name} has no texts, so nothing can be routed by a prompt")

    def preview(self, sample: Samples) -> str:
        """One sample in a line, for people: the beginning of a text, say. "": there is nothing to show."""
        return ""

    def mixture(self, models: Sequence[nn.Module], weights: Sequence[float]) -> nn.Module:
        """One model for `generate` that mixes what several predict; weights follow how well each predicted so far."""
        raise UsageError(f"task {self.name} cannot mix models")

    def probe(self) -> Samples:
        """Fixed inputs on which models are compared, about 128 of the test data."""
        return as_test_data(self.test_data()).first(PROBE_INPUTS)

    def labels(self, samples: Samples) -> Tensor | None:
        """The class of each sample; None where samples have none."""
        found = samples.get("y")
        return found if found is not None and found.ndim == 1 and not found.is_floating_point() else None

    def figures(self, evaluation: Evaluation) -> tuple[Figure, ...]:
        """Figures that views show in addition to loss and accuracy, such as the perplexity of a language model."""
        return ()

    def generate(self, model: nn.Module, prompt: str, how: Generation) -> Iterator[str]:
        """Pieces of the text with which the model continues a prompt; UsageError where that is not possible.

        The caller sets evaluation mode, and has the same weights loaded whenever it asks for the next piece.
        """
        raise UsageError(f"task {self.name} generates no text; only language models do, such as --task gpt")

    def sample(self, model: nn.Module) -> str:
        """A short text of the model, which views show as it learns; "" where it makes none. Takes about a second."""
        return ""

    def export_facts(self) -> Mapping[str, str]:
        """What an exported file needs besides weights and options, so that others can use the model."""
        return {}

    def use_facts(self, facts: Mapping[str, str]) -> None:
        """Take what `export_facts` gave; UsageError when it cannot be used."""


class ContractBroken(ValueError):
    """A method of a task returned something that its contract forbids; the message goes on from the method's name."""

    def __init__(self, method: str, what: str) -> None:
        super().__init__(what)
        self.method = method


def logits_of(outputs: Any) -> Any:
    """What a model computed: its outputs, or the `logits` in them (as models of Hugging Face give them, or a dict)."""
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return getattr(outputs, "logits", outputs)


def _checked_hits(hits: Any, samples: int) -> int | None:
    """What `right` returned, as a number; ContractBroken unless it is how many of the samples were right."""
    if hits is None:
        return None
    if isinstance(hits, Tensor) and hits.numel() == 1:
        hits = hits.item()
    shown = f"a tensor of shape {tuple(hits.shape)}" if isinstance(hits, Tensor) else repr(hits)[:40]
    try:
        if int(hits) == hits and 0 <= hits <= samples:
            return int(hits)
    except (TypeError, ValueError, RuntimeError):
        pass  # no number
    raise ContractBroken(
        "right",
        f"must give how many of the {samples} samples were right, not {shown}; "
        "return a whole number such as int((outputs.argmax(1) == batch['y']).sum()), or None",
    )


def labels_of(task: Task, data: Data) -> NDArray[np.int64] | None:
    """The class of each sample; None where there are none, or where all samples had to be read for them."""
    if not data.in_memory:
        return data.labels
    found = task.labels(next(data.pieces(len(data))))
    return None if found is None else found.numpy().astype(np.int64)


def has_sample_losses(task: Task) -> bool:
    """Whether `losses` belongs to the task's `loss`: False when a subclass overrides `loss` alone."""
    owners = [vars(task), *(vars(kind) for kind in type(task).__mro__)]
    loss, losses = (next(place for place, own in enumerate(owners) if name in own) for name in ("loss", "losses"))
    return losses <= loss


def option_defaults(task: type[Task]) -> dict[str, Option]:
    """The task's options with their defaults: its plain public attributes, without name and version."""
    found: dict[str, Option] = {}
    for owner in reversed(task.__mro__):
        for key, value in vars(owner).items():
            if not key.startswith("_") and isinstance(value, bool | int | float | str):
                found[key] = value
    return {key: value for key, value in found.items() if key not in ("name", "version")}


def as_option(task: str, key: str, value: object, like: Option) -> Option:
    """`value`, which may be text from a command line, as a value of the option's type; UsageError otherwise."""
    readers: dict[type, Callable[[Any], Option]] = {bool: _as_bool, int: _as_int, float: _as_float, str: str}
    try:
        return readers[type(like)](value)
    except (ValueError, TypeError, OverflowError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(like)]
        raise UsageError(f"task {task}: {key} must be {kind}, not {str(value)[:60]!r}") from None


def _as_int(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or abs(int(value)) > LARGEST:
        raise ValueError(value)
    return int(value)


def _as_float(value: Any) -> float:
    if not math.isfinite(float(value)):
        raise ValueError(value)
    return float(value)


def _as_bool(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError(value)
    return word in ("true", "yes", "1")
