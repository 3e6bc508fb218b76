"""Hugging Face's Trainer with one callback. Run it twice, the second time with the invite it prints:

    python examples/hugging_face.py
    python examples/hugging_face.py CODE

Each process trains a small GPT-2 (made from a configuration; `from_pretrained` works the same) on sequences some of
which the other one lacks, and is tested on all kinds. `alone` instead of a code trains without p2pnode.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from p2pnode.integrations import HuggingFaceCallback

CODE = sys.argv[1] if len(sys.argv) > 1 else None
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "60"))
GOAL = 1.5  # a test loss that no process reaches alone
LINGER = 5.0  # seconds that a process goes on once the goal is reached, so that the other one reaches it too
CONTEXT = 32


class Sequences(Dataset):  # type: ignore[type-arg]
    """Bytes that count in steps of some sizes."""

    def __init__(self, sizes: tuple[int, ...], count: int = 1024, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        start = torch.randint(256, (count, 1), generator=draw)
        size = torch.tensor(sizes)[torch.randint(len(sizes), (count, 1), generator=draw)]
        self.rows = (start + size * torch.arange(CONTEXT)) % 256

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[row], "labels": self.rows[row]}


def test_loss(model: Any) -> float:
    """The loss on sequences with steps of all sizes."""
    model.eval()
    rows = Sequences((1, 2, 3), 128, seed=1).rows
    with torch.no_grad():
        return float(model(input_ids=rows, labels=rows).loss)


class StopAtGoal(TrainerCallback):
    """Ends training at the goal, or after a time."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end = time.monotonic() + SECONDS

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        swarm = together.swarm
        if swarm is not None and swarm.evaluation is not None and swarm.evaluation.loss < GOAL and swarm.peers():
            self._end = min(self._end, time.monotonic() + LINGER)
        control.should_training_stop = time.monotonic() > self._end


model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2))
together = HuggingFaceCallback(None if CODE == "alone" else CODE, evaluate=lambda model: (test_loss(model), None))
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=os.environ.get("EXAMPLE_OUTPUT", "hugging_face_output"),
        max_steps=1_000_000,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        per_device_train_batch_size=16,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=Sequences((1, 2) if CODE in (None, "alone") else (2, 3)),
    callbacks=[StopAtGoal()] if CODE == "alone" else [StopAtGoal(), together],
)
trainer.train()
found = None if together.swarm is None else together.swarm.evaluation
print(f"test loss {test_loss(trainer.model) if found is None else found.loss:.3f}")
