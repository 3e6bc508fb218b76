"""Continues a text token by token with a decoder. What it has computed of earlier tokens is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .decoder import Cache, Decoder, MixedDecoder
from .tokenizer import UNKNOWN, Tokenizer


@dataclass(frozen=True)
class Generation:
    """How a text is continued."""

    length: int = 200  # tokens
    temperature: float = 0.8  # 0: always the likeliest token
    top_k: int = 0  # choose among this many of the likeliest tokens; 0: among all
    seed: int = 0


@torch.no_grad()
def next_tokens(model: Decoder | MixedDecoder, tokens: Sequence[int], how: Generation) -> Iterator[int]:
    """The tokens that follow some, at most as many as the model's context has.

    When the context is full, the later half of it goes on: then all is computed anew, once in half a context.
    """
    device = model.table.weight.device
    chance = torch.Generator().manual_seed(how.seed)
    seen, cache = list(tokens), Cache()
    fresh = seen
    for _ in range(how.length):
        if len(seen) > model.context:
            seen = fresh = seen[-max(1, model.context // 2) :]
            cache = []
        logits = model(torch.tensor([fresh], device=device), cache)[0, -1]
        chosen = _choose(logits.float().cpu(), how, chance)
        seen.append(chosen)
        fresh = [chosen]
        yield chosen


def _choose(logits: Tensor, how: Generation, chance: torch.Generator) -> int:
    if how.temperature <= 0:
        return int(logits.argmax())
    if 0 < how.top_k < len(logits):
        logits[logits < logits.topk(how.top_k).values[-1]] = -torch.inf
    return int(torch.multinomial((logits / how.temperature).softmax(0), 1, generator=chance))


def as_text(tokens: Iterator[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The text of tokens as they come. A character that needs several comes with the last of them."""
    pending: list[int] = []
    for token in tokens:
        pending.append(token)
        text = tokenizer.decode(pending)
        whole = not text.endswith(UNKNOWN) or len(pending) >= LONGEST_CHARACTER
        if whole:
            pending.clear()
        yield text if whole else ""
    if pending:
        yield tokenizer.decode(pending)


LONGEST_CHARACTER = 4  # tokens; what is no character by then never becomes one
