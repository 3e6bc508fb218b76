"""The decoder of the task `gpt`: rotary positions, RMSNorm before each part of a block, and a gated perceptron.

One table is both the input embedding and the output layer. Matrices of one shape that a block uses together are one
parameter with three dimensions (query, key, value; gate and value of the perceptron): one product computes them, and
Muon treats each as a matrix of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

ROTARY_BASE = 10_000.0
WIDTH_MULTIPLE = 16  # of the perceptron's hidden width, for fast matrix products


class DecoderShape(NamedTuple):
    """The size of a model."""

    width: int
    layers: int
    heads: int
    context: int  # most tokens that it looks at
    vocabulary: int


Cache = list[tuple[Tensor, Tensor]]  # keys and values of each block, of the tokens seen so far


class Decoder(nn.Module):
    """Predicts the next token at each place of sequences of tokens."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.context = shape.context
        self.table = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        nn.init.normal_(self.table.weight, std=shape.width**-0.5)  # 0.02 was 0.35 nats worse after 400 steps
        cosines, sines = rotations(shape.context, shape.width // shape.heads)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """The logits of each next token, from tokens (batch, time).

        With a `cache` the tokens go on where those before ended; it is filled, and the context bounds its length.
        """
        begin = cache[0][0].shape[2] if cache else 0
        hidden = self.table(tokens.long())
        for number in range(len(self.blocks)):
            hidden = self.through(number, hidden, cache, begin)
        return self.logits(hidden)

    def through(self, number: int, hidden: Tensor, cache: Cache | None = None, begin: int = 0) -> Tensor:
        """What one block makes of hidden states (batch, time, width), the first of which is at place `begin`."""
        end = begin + hidden.shape[1]
        found: Tensor = self.blocks[number](hidden, (self.cosines[begin:end], self.sines[begin:end]), cache, number)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of each next token, from what the last block gave."""
        return functional.linear(self.norm(hidden), self.table.weight)


class MixedDecoder(nn.Module):
    """Mixes the predictions of several decoders. Their weights follow how well each predicted the tokens so far."""

    def __init__(self, decoders: Sequence[Decoder], weights: Sequence[float]) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(decoders)
        self.context = decoders[0].context
        self.table = decoders[0].table
        self._first = torch.tensor(weights).log()
        self._weights = self._first
        self._caches: list[Cache] = []
        self._expected: Tensor | None = None  # log probabilities of the next token, for each decoder

    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        """The log probabilities of the token after the last one (1, 1, vocabulary), from tokens (1, time).

        An empty `cache` begins anew; what is kept of earlier tokens is kept here.
        """
        if not cache:
            self._caches, self._expected = [[] for _ in self.decoders], None
            cache.append((tokens, tokens))
        predicted = [
            decoder(tokens, own).float().log_softmax(-1)[0]
            for decoder, own in zip(self.decoders, self._caches, strict=True)
        ]
        logs = torch.stack(predicted).cpu()  # (decoders, time, vocabulary)
        weights = self._first if self._expected is None else self._weights + self._expected[:, tokens[0, 0]]
        known = tokens[0, 1:].cpu().long().expand(len(logs), -1)[..., None]
        weights = weights + logs[:, :-1].gather(2, known).sum((1, 2))
        self._weights = weights.log_softmax(0)
        self._expected = logs[:, -1]
        return (self._weights[:, None] + self._expected).logsumexp(0)[None, None]


class Block(nn.Module):
    """Attention and a gated perceptron, each with a residual connection. Both begin as the identity."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        hidden = -(-8 * width // (3 * WIDTH_MULTIPLE)) * WIDTH_MULTIPLE  # as many weights as 4 · width without a gate
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.ask = nn.Parameter(torch.empty(3, width, width))
        self.mix = nn.Parameter(torch.zeros(width, width))
        self.widen = nn.Parameter(torch.empty(2, hidden, width))
        self.narrow = nn.Parameter(torch.zeros(width, hidden))
        for matrices in (self.ask, self.widen):
            nn.init.normal_(matrices, std=(3 * width) ** -0.5)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, number: int) -> Tensor:
        batch, time, width = x.shape
        asked = functional.linear(self.norm1(x), self.ask.flatten(0, 1))
        queries, keys, values = asked.view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        queries, keys = turned(queries, turn), turned(keys, turn)
        if cache is not None:
            keys, values = _joined(cache, number, keys, values)
        causal = time > 1  # one token at the end looks at all before it
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        x = x + functional.linear(seen.transpose(1, 2).reshape(batch, time, width), self.mix)
        gate, value = functional.linear(self.norm2(x), self.widen.flatten(0, 1)).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * value, self.narrow)


def _joined(cache: Cache, number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The keys and values of all tokens so far, which the cache has from now on."""
    if number == len(cache):
        cache.append((keys, values))
    else:
        before = cache[number]
        cache[number] = (torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2))
    return cache[number]


def rotations(context: int, size: int) -> tuple[Tensor, Tensor]:
    """The cosines and sines (context, size / 2) by which places turn the parts of queries and keys."""
    speeds = ROTARY_BASE ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(context)[:, None] * speeds
    return angles.cos(), angles.sin()


def turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys (…, time, size) turned by their places."""
    cosines, sines = turn
    one, other = x.chunk(2, -1)
    return torch.cat([one * cosines - other * sines, one * sines + other * cosines], -1).to(x.dtype)
