"""The built-in task `text`: a small causal transformer predicts the bytes of the user's files (nats per byte)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..wire.errors import UsageError
from .blocks import Layer, TaskBlocks
from .corpus import Corpus, Windows, open_corpus
from .features import token_counts
from .optimizers import AdamW
from .task import PROBE_INPUTS, Samples, Task

BYTES = 256
MAX_LAYERS = 1000
PROBE = Path(__file__).with_name("probe.txt")


class Text(Task):
    """About 320,000 parameters by default; width=256 and layers=7 make 5.6 million."""

    name = "text"
    batch_size = 16
    evaluation_batch = 64
    learning_rate = 0.003
    warmup = 50
    width = 88
    layers = 3
    heads = 4
    context = 128
    test_windows = 256
    source = ""

    def model(self) -> nn.Module:
        if min(self.width, self.layers, self.heads, self.context) < 1 or self.width % self.heads:
            raise UsageError(
                f"task text: width ({self.width}) must be a multiple of heads ({self.heads}), all above zero"
            )
        if self.layers > MAX_LAYERS:
            raise UsageError(f"task text: {self.layers} layers are too many; {MAX_LAYERS} are allowed")
        return Transformer(self.width, self.layers, self.heads, self.context)

    def data(self) -> Samples:
        windows = self._corpus().train
        files = windows.targets
        return windows.columns() if files is None else {**windows.columns(), "file": torch.from_numpy(files)}

    def test_data(self) -> Samples:
        held = self._corpus().test
        return held.__getitems__(self._tested(held).tolist())

    def _tested(self, held: Windows) -> NDArray[np.int64]:
        """The windows of the held-out text that are tested on."""
        return np.linspace(0, len(held) - 1, min(len(held), max(1, self.test_windows))).round().astype(np.int64)

    def documents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        corpus = self._corpus()
        return corpus.train.documents, corpus.test.documents[self._tested(corpus.test)]

    def _corpus(self) -> Corpus:
        if not self.source:
            raise UsageError("task text needs text: use --data FILE, or a directory of text files")
        return _read(self.source, self.context)

    def losses(self, model: nn.Module, batch: Samples) -> Tensor:
        return self.piece_losses(model, batch).mean(1)

    def piece_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        return _byte_losses(model(batch["x"][:, :-1]), batch)

    def features(self, samples: Samples, size: int, prefix: int | None = None) -> Tensor:
        return torch.from_numpy(token_counts(samples["x"][:, :prefix].numpy(), size))

    def blocks(self, model: nn.Module) -> TaskBlocks:
        assert isinstance(model, Transformer)
        return TaskBlocks(
            lambda batch: model.embedded(batch["x"][:, :-1]),
            [Layer(block, block) for block in model.blocks],
            lambda hidden, batch: _byte_losses(model.logits(hidden), batch).mean(1),
        )

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> AdamW:
        return AdamW(self.learning_rate, betas=(0.9, 0.95))

    def rate(self, step: int) -> float:
        return min(1.0, (step + 1) / max(1, self.warmup))

    def probe(self) -> Samples:
        """Pieces of a text in this package, so that nodes with different texts are compared on the same inputs."""
        raw = np.frombuffer(PROBE.read_bytes(), np.uint8)
        starts = np.linspace(0, len(raw), PROBE_INPUTS, endpoint=False).astype(np.int64)
        return {"x": torch.from_numpy(raw[(starts[:, None] + np.arange(self.context)) % len(raw)])}

    def preview(self, sample: Samples) -> str:
        return " ".join(bytes(sample["x"][0].tolist()).decode(errors="replace").split())

    def labels(self, samples: Samples) -> Tensor | None:
        """The file that each window is from; None when there is only one."""
        return samples.get("file")


def _byte_losses(logits: Tensor, batch: Samples) -> Tensor:
    """The loss of each byte but the first, (samples, bytes)."""
    x = batch["x"].long()
    each = functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
    return each.view(len(x), -1)


@cache
def _read(source: str, context: int) -> Corpus:
    return open_corpus(source, context, BYTES)


class Transformer(nn.Module):
    """A decoder with pre-norm blocks, learned positions, and one byte table for input and output."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TextBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.bytes, self.places):
            nn.init.normal_(table.weight, std=width**-0.5)  # 0.02 was 0.35 nats worse after 400 steps

    def forward(self, x: Tensor) -> Tensor:
        """The logits of each next byte, from bytes (batch, time)."""
        hidden = self.embedded(x)
        for block in self.blocks:
            hidden = block(hidden)
        return self.logits(hidden)

    def embedded(self, x: Tensor) -> Tensor:
        """What the first block gets."""
        hidden: Tensor = self.bytes(x.long()) + self.places.weight[: x.shape[1]]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of each next byte, from what the last block gave."""
        return functional.linear(self.norm(hidden), self.bytes.weight)


class TextBlock(nn.Module):
    """Attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        split = self.ask(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, time, width))
        further: Tensor = self.narrow(functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))
        return x + further
