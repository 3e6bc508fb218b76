"""What recording how confident a model is of each sample costs, as a share of training time.

    python -m benchmarks.confidence [--json] [--quick]

Two trainers do the same rounds of local steps in turn. The task of one reports only the mean loss; the task of the
other reports the loss of every sample, which is recorded and judged at the end of the round. Processor time of the
faster half of the rounds, because other work on the machine slows some of them down.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean
from tempfile import NamedTemporaryFile

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.common import Figures, need_fashion_mnist, progress, run
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.fashion_mnist import FashionMnist
from p2pnode.tasks.gpt import Gpt
from p2pnode.tasks.task import Samples, Task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer

STEPS = {"digits": 600, "fashion_mnist": 200, "gpt": 3}  # in a round of some 0.2 s: a tenth of the usual


class PlainDigits(Digits):
    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        return functional.cross_entropy(model(batch["x"]), batch["y"])


class PlainFashion(FashionMnist):
    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        return functional.cross_entropy(model(batch["x"]), batch["y"])


class PlainGpt(Gpt):
    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        x = batch["x"].long()
        return functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def cost(plain: Task, reporting: Task, steps: int, rounds: int) -> float:
    """How much longer rounds take when confidence is recorded, as a share."""
    trainers = [Trainer(ModelHost(task), seed=1) for task in (plain, reporting)]
    weights = [one.model_host.genesis for one in trainers]
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for which, one in enumerate(trainers):
            begun = time.thread_time()
            weights[which] = one.steps(weights[which], steps).weights
            if which:
                one.pool.end_round()
            seconds[which].append(time.thread_time() - begun)
    without, with_them = (mean(sorted(times)[: len(times) // 2]) for times in seconds)
    return with_them / without - 1


def measure(arguments: argparse.Namespace) -> Figures:
    need_fashion_mnist()
    torch.set_num_threads(1)
    rounds = 12 if arguments.quick else 80
    figures: Figures = {}
    with NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("The quick brown fox jumps over the lazy dog. " * 4000)
        text.flush()
        pairs: dict[str, tuple[Task, Task]] = {
            "digits": (PlainDigits(), Digits()),
            "fashion_mnist": (PlainFashion(), FashionMnist()),
            "gpt": (PlainGpt(source=text.name), Gpt(source=text.name)),
        }
        for name, (plain, reporting) in pairs.items():
            figures[f"cost_{name}"] = cost(plain, reporting, STEPS[name], rounds)
            progress(f"{name}: {figures[f'cost_{name}']:+.2%} of training time")
    return figures


if __name__ == "__main__":
    run("confidence", measure)
