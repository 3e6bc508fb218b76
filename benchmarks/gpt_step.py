"""How fast a training step of the task `gpt` is, compared with a plain loop of PyTorch with the same model and batches.

    python -m benchmarks.gpt_step [--json] [--quick] [--sizes nano,tiny,small] [--batch 32]

Both do the same rounds of steps in turn, in one thread: forward and backward pass with bfloat16 where the processor has
it, clipping, and AdamW or Muon. The plain loop uses torch.optim; its Muon gets every matrix of a stack by itself.
Processor time of the faster half of the rounds. `overhead` is how much longer our step takes, `optimizer_share` the
share of our step that is neither forward nor backward pass, `bfloat16_gain` how much faster bfloat16 makes our step.
`besides_share` is the share of all of a node's work that is neither forward nor backward pass: the optimizer and, once
in a round of ten steps, all that a circle of four does to share entries (start, record, publish, exchange, merge).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import mean
from tempfile import NamedTemporaryFile

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.common import Report, Row, numbers, progress_row, run, words
from p2pnode.circles.founding import circle_lineage
from p2pnode.compression.weights import to_units
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.merging.registry import policy_named
from p2pnode.tasks.find import load_task
from p2pnode.tasks.gpt import Gpt
from p2pnode.tasks.optimizers import Clipped, Muon
from p2pnode.tasks.task import Option
from p2pnode.training.host import ModelHost, autocast, build_model
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import Identity

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. " * 8000
ALGORITHMS = ("adamw", "muon")
STEPS = 10  # of a round
CIRCLE = 4


class PlainLoop:
    """What a user would write: the task's model, a loss, torch's clipping and optimizers."""

    def __init__(self, task: Gpt) -> None:
        self._task = task
        self._model = build_model(task, 1).train()
        self._windows = load_task("gpt", task.options, task.source)._corpus().train  # type: ignore[attr-defined]
        self._chance = torch.Generator().manual_seed(1)
        self._parts = list(self._model.parameters())
        for part in self._parts:
            part.grad = torch.zeros_like(part)
        matrices = [part for part in self._parts[1:] if part.ndim > 1]
        others = [part for part in self._parts if not any(part is one for one in matrices)]
        adamw = task.algorithm == "adamw"
        plain = torch.optim.AdamW(self._parts if adamw else others, lr=task.learning_rate, betas=(0.9, 0.95))
        self._optimizers: list[torch.optim.Optimizer] = [plain]
        if not adamw:
            self._optimizers.append(torch.optim.Muon(_single(matrices), lr=task.muon_rate, weight_decay=0.01))

    def steps(self, count: int) -> None:
        for _ in range(count):
            rows = torch.randint(len(self._windows), (self._task.batch_size,), generator=self._chance)
            x = self._windows.__getitems__(rows.tolist())["x"].long()
            for part in self._parts:
                assert part.grad is not None
                part.grad.zero_()
            with autocast(torch.device("cpu"), self._task.bfloat16_on_cpu):
                logits = self._model(x[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), x[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self._parts, self._task.clip)
            for one in self._optimizers:
                one.step()
            loss.item()


def _single(stacks: list[nn.Parameter]) -> list[nn.Parameter]:
    """The matrices of stacks, each as a parameter of its own that shares memory with the stack."""
    found = []
    for stack in stacks:
        assert stack.grad is not None
        pairs = zip(stack.data.reshape(-1, *stack.shape[-2:]), stack.grad.reshape(-1, *stack.shape[-2:]), strict=True)
        for data, gradient in pairs:
            found.append(nn.Parameter(data))
            found[-1].grad = gradient
    return found


class OurLoop:
    """The trainer of a node, with the optimizer's time measured apart."""

    def __init__(self, task: Gpt) -> None:
        self._trainer = Trainer(ModelHost(task, seed=1), seed=1)
        self._weights = self._trainer.model_host.genesis
        self.optimizer_seconds = 0.0
        stepper = self._trainer._stepper
        step = stepper.step

        def timed(rate: float) -> None:
            begun = time.thread_time()
            step(rate)
            self.optimizer_seconds += time.thread_time() - begun

        stepper.step = timed  # type: ignore[method-assign]

    def steps(self, count: int) -> None:
        self._weights = self._trainer.steps(self._weights, count).weights


def task_for(size: str, algorithm: str, batch: int, source: str, bfloat16: bool = True) -> Gpt:
    options: dict[str, Option] = {
        "size": size,
        "algorithm": algorithm,
        "batch_size": batch,
        "bfloat16_on_cpu": bfloat16,
    }
    task = load_task("gpt", options, source)
    assert isinstance(task, Gpt)
    return task


def in_turn(loops: list[Callable[[int], None]], rounds: int, steps: int) -> list[float]:
    """Processor seconds of a step of each loop, in the faster half of the rounds."""
    seconds: list[list[float]] = [[] for _ in loops]
    for one in loops:
        one(1)  # warms up
    for _ in range(rounds):
        for which, one in enumerate(loops):
            begun = time.thread_time()
            one(steps)
            seconds[which].append((time.thread_time() - begun) / steps)
    return [mean(sorted(times)[: max(1, len(times) // 2)]) for times in seconds]


def sharing_seconds(task: Gpt, rounds: int) -> float:
    """Processor seconds that a node of a circle of four takes to share one round, besides training."""
    host, chance = ModelHost(task, seed=1), np.random.default_rng(1)
    genesis = to_units(host.genesis)
    identities = [Identity(bytes([number]) * 32) for number in range(CIRCLE)]
    policies = [
        policy_named("deltaset")(
            PolicySetup(
                genesis,
                identity,
                circle_lineage(bytes(32), "").hex(),
                "main",
                host.layout.hash,
                task.deltaset_settings,
                1,
                host.layout.layer_sizes,
            )
        )
        for identity in identities
    ]
    learned = [chance.normal(0.0, 1e-3, len(genesis)).astype(np.float32) for _ in policies]
    facts, seconds = RoundFacts(STEPS, 2.0, STEPS * task.batch_size, CIRCLE), 0.0
    for _ in range(rounds):
        for policy, progress in zip(policies, learned, strict=True):
            begun = time.thread_time()
            start = policy.start()
            policy.publish(policy.record(start, start + progress, facts))
            seconds += time.thread_time() - begun
        begun = time.thread_time()
        for here, asks in enumerate(policies):
            for there, answers in enumerate(policies[here + 1 :], here + 1):
                me, partner = identities[here].peer_id, identities[there].peer_id
                push = asks.take(partner, answers.answer(me, asks.ask(partner)))
                if push:
                    answers.take(me, push)
        for policy in policies:
            policy.merge()
        seconds += time.thread_time() - begun
    return seconds / (rounds * CIRCLE)


def measured(size: str, algorithm: str, batch: int, source: str, rounds: int, steps: int) -> Row:
    task = task_for(size, algorithm, batch, source)
    ours = OurLoop(task)
    full = OurLoop(task_for(size, algorithm, batch, source, bfloat16=False))
    optimizer = ours._trainer.model_host.task.optimizer([same[0] for same in ours._trainer.model_host.parts])
    assert isinstance(optimizer, Clipped) and isinstance(optimizer.optimizer, Muon) == (algorithm == "muon")
    begun = ours.optimizer_seconds
    own, plain, slow = in_turn([ours.steps, PlainLoop(task).steps, full.steps], rounds, steps)
    tokens = batch * task.shape.context
    share = (ours.optimizer_seconds - begun) / ((rounds * steps + 1) * own)
    sharing = sharing_seconds(task, 4) / STEPS  # of a step
    return {
        "size": size,
        "algorithm": algorithm,
        "tokens_per_step": tokens,
        "tokens_per_s": tokens / own,
        "plain_tokens_per_s": tokens / plain,
        "overhead": own / plain - 1,
        "optimizer_share": share,
        "besides_share": (share * own + sharing) / (own + sharing),
        "bfloat16_gain": slow / own,
    }


def measure(arguments: argparse.Namespace) -> Report:
    torch.set_num_threads(1)
    sizes = arguments.sizes or (["nano", "tiny"] if arguments.quick else ["nano", "tiny", "small"])
    rounds = 6 if arguments.quick else 20
    report = Report()
    with NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(TEXT)
        text.flush()
        for size in sizes:
            for algorithm in ALGORITHMS:
                for batch in arguments.batch:
                    steps = 4 if size == "nano" else 1
                    row = measured(size, algorithm, batch, text.name, rounds, steps)
                    report.rows.append(row)
                    progress_row(row)
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=words, default=[], help="sizes of the task gpt, with commas between")
    parser.add_argument("--batch", type=numbers, default=[32], help="sequences in a batch")
    run("gpt_step", measure, parser)
