"""Two processes fine-tune one model with LoRA adapters (peft); only the adapters travel. Run it twice:

    python examples/lora.py
    python examples/lora.py CODE

The base model is made from a configuration and a seed, so that both have the same; with `from_pretrained` it comes from
the hub. Each process has sequences some of which the other one lacks. `alone` instead of a code trains without p2pnode.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import p2pnode

CODE = sys.argv[1] if len(sys.argv) > 1 else None
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "60"))
GOAL = 2.0  # a test loss that no process reaches alone
LINGER = 5.0  # seconds that a process goes on once the goal is reached, so that the other one reaches it too
CONTEXT = 32


def sequences(sizes: tuple[int, ...], count: int, seed: int = 0) -> torch.Tensor:
    """Bytes that count in steps of some sizes."""
    draw = torch.Generator().manual_seed(seed)
    start = torch.randint(256, (count, 1), generator=draw)
    size = torch.tensor(sizes)[torch.randint(len(sizes), (count, 1), generator=draw)]
    return (start + size * torch.arange(CONTEXT)) % 256


def test_loss(model: Any) -> float:
    """The loss on sequences with steps of all sizes."""
    model.eval()
    rows = sequences((1, 2, 3), 64, seed=1)
    with torch.no_grad():
        return float(model(input_ids=rows, labels=rows).loss)


torch.manual_seed(0)
base = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2))
targets = ["c_attn", "c_proj", "c_fc", "lm_head"]
model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=targets, fan_in_fan_out=True))
optimizer = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], 5e-3)
rows = sequences((1, 2) if CODE in (None, "alone") else (2, 3), 1024)

joined = None if CODE == "alone" else p2pnode.join(model, optimizer, CODE, evaluate=lambda m: (test_loss(m), None))
with joined or contextlib.nullcontext():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if joined is not None and joined.evaluation is not None and joined.evaluation.loss < GOAL and joined.peers():
            end = min(end, time.monotonic() + LINGER)
        model.train()
        batch = rows[torch.randint(len(rows), (16,))]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if joined is not None:
            joined.report(loss.item())
    if joined is not None and "EXAMPLE_OUTPUT" in os.environ:
        joined.export(os.environ["EXAMPLE_OUTPUT"])  # a directory that peft's from_pretrained reads
found = None if joined is None else joined.evaluation
print(f"test loss {test_loss(model) if found is None else found.loss:.3f}")
