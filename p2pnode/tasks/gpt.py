"""The built-in task `gpt`: a decoder learns to predict the next byte or token of the user's texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..wire.errors import UsageError, suggestion
from ..wire.status import Figure
from .blocks import Layer, TaskBlocks
from .corpus import Corpus, Windows, is_tokens, open_corpus
from .data import TaskData
from .decoder import Decoder, DecoderShape, MixedDecoder
from .features import token_counts
from .generation import Generation, as_text, next_tokens
from .optimizers import AdamW, Clipped, Optimizer, muon
from .task import PROBE_INPUTS, Evaluation, Option, Samples, Task
from .tokenizer import BYTES, ByteTokenizer, FileTokenizer, Tokenizer, tokenizer_of

TOKENS = "tokens"  # in place of a tokenizer's id: the data are tokens, and nobody says of what
GPT2_VOCABULARY = 50_257
MAX_LAYERS = 1000
IN_MEMORY_BYTES = 128 << 20  # of texts, at most; others stay on disk
MAX_VOCABULARY = 1 << 24
ALGORITHMS = ("muon", "adamw")
PROBE = Path(__file__).with_name("probe.txt")
SAMPLE = Generation(length=100, temperature=0.8, top_k=50, seed=1)
PROBE_TOKENS = 64  # of each input, so that activations of large models stay small
SAMPLE_PROMPT = "The "


class Size(NamedTuple):
    """A size by name, and the batch that suits it."""

    width: int
    layers: int
    heads: int
    context: int


SIZES = {  # with bytes as tokens they have this many million parameters
    "nano": Size(64, 2, 2, 128),  # 0.1
    "tiny": Size(128, 4, 4, 256),  # 0.8
    "small": Size(256, 6, 4, 256),  # 4.8
    "base": Size(512, 8, 8, 512),  # 25
    "gpt2": Size(768, 12, 12, 1024),  # 85; 124 with the vocabulary of GPT-2
}


class Gpt(Task):
    """A size has a name (`size=small`); width, layers, heads and context change parts of it.

    `tokenizer` and `vocabulary` follow from the founder's data, and members' data must agree with them.
    """

    name = "gpt"
    size = "tiny"
    width = 0  # these four: 0 is what the size says
    layers = 0
    heads = 0
    context = 0
    tokenizer = ""  # `bytes`, `tokens`, or the id of a tokenizer.json
    vocabulary = 0  # 0: as the tokenizer says; GPT-2's for files of tokens without one
    batch_size = 16
    evaluation_batch = 64
    bfloat16_on_cpu = True
    algorithm = "muon"  # or adamw, which sends a third of the bytes and learns less from a step (docs/log.md)
    learning_rate = 0.003  # of AdamW, which with Muon still learns the table and the vectors
    muon_rate = 0.02
    clip = 1.0  # norm of the gradient, at most
    warmup = 50  # steps
    test_windows = 256
    source = ""

    def __init__(self, **options: Option) -> None:
        """Take the options and find out what tokens the data have; UsageError when they are not the run's."""
        super().__init__(**options)
        self._cuts: FileTokenizer | None = None
        if self.algorithm not in ALGORITHMS:
            raise UsageError(
                f"task {self.name}: there is no algorithm {self.algorithm[:60]!r}; "
                f"{suggestion(self.algorithm, ALGORITHMS)}"
            )
        path = Path(self.source).expanduser()
        if self.source and path.exists():
            self._agree(tokenizer_of(path), is_tokens(path))

    def _agree(self, own: FileTokenizer | None, tokens: bool) -> None:
        """Take the tokenizer of the data, or compare it with the run's."""
        self._cuts = own
        found = own.id if own is not None else TOKENS if tokens else BYTES
        if self.tokenizer and self.tokenizer != found:
            remedy = {
                BYTES: "take tokenizer.json away from it",
                TOKENS: "give a file of the same tokens, without a tokenizer.json in the same folder",
            }
            theirs = f"the tokenizer {self.tokenizer[:16]}" if self.tokenizer not in remedy else self.tokenizer
            do = remedy.get(self.tokenizer, "put the run's tokenizer.json there")
            raise UsageError(f"task {self.name}: the run learns {theirs}, and --data has {found}; {do}")
        self.tokenizer = found
        self.vocabulary = self.vocabulary or (own.size if own is not None else GPT2_VOCABULARY if tokens else 0)

    @property
    def shape(self) -> DecoderShape:
        """The model's size; UsageError when it is none."""
        if self.size not in SIZES:
            raise UsageError(f"task {self.name}: there is no size {self.size[:60]!r}; {suggestion(self.size, SIZES)}")
        width, layers, heads, context = (
            getattr(self, key) or value for key, value in SIZES[self.size]._asdict().items()
        )
        shape = DecoderShape(width, layers, heads, context, self.vocabulary or ByteTokenizer.size)
        if min(shape) < 1 or shape.width % (2 * shape.heads):
            raise UsageError(
                f"task {self.name}: width ({shape.width}) must be a multiple of two times heads ({shape.heads}), "
                "and all sizes above zero"
            )
        if shape.layers > MAX_LAYERS or shape.vocabulary > MAX_VOCABULARY:
            raise UsageError(
                f"task {self.name}: {shape.layers} layers and a vocabulary of {shape.vocabulary:,} are too many; "
                f"{MAX_LAYERS} and {MAX_VOCABULARY:,} are allowed"
            )
        return shape

    @property
    def deltaset_settings(self) -> Mapping[str, float]:
        """Muon changes all coordinates by about as much, so that entries have the sign of each (docs/log.md)."""
        return {"signs": 1.0} if self.algorithm == "muon" else {}

    def model(self) -> nn.Module:
        return Decoder(self.shape)

    def data(self) -> TaskData:
        windows = self._corpus().train
        try:
            return windows.columns() if windows.size_bytes <= IN_MEMORY_BYTES else windows
        except ValueError as error:
            raise UsageError(f"--data: {error}; set it with --task-option vocabulary=") from None

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
            raise UsageError(
                f"task {self.name} needs text: use --data FILE, a directory of text files, or a file of tokens (.bin)"
            )
        shape = self.shape
        return _open(self.source, shape.context, shape.vocabulary, self._cuts)

    def losses(self, model: nn.Module, batch: Samples) -> Tensor:
        return self.piece_losses(model, batch).mean(1)

    def piece_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        return _token_losses(model(batch["x"].long()[:, :-1]), batch)

    def features(self, samples: Samples, size: int, prefix: int | None = None) -> Tensor:
        return torch.from_numpy(token_counts(samples["x"][:, :prefix].numpy(), size))

    def blocks(self, model: nn.Module) -> TaskBlocks:
        assert isinstance(model, Decoder)
        layers = [Layer(block, partial(model.through, number)) for number, block in enumerate(model.blocks)]
        return TaskBlocks(
            lambda batch: model.table(batch["x"].long()[:, :-1]),
            layers,
            lambda hidden, batch: _token_losses(model.logits(hidden), batch).mean(1),
        )

    def mixture(self, models: Sequence[nn.Module], weights: Sequence[float]) -> nn.Module:
        return MixedDecoder([model for model in models if isinstance(model, Decoder)], weights)

    def confidence(self, losses: Tensor, batch: Samples) -> Tensor:
        """How sure the model is of a token, counted as of a byte: who knows nothing has 1/256 in any vocabulary."""
        return torch.exp(-losses * (math.log(ByteTokenizer.size) / math.log(max(2, self.shape.vocabulary))))

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        table, *others = parameters  # the decoder's first parameter is its table
        plain = AdamW(self.learning_rate, betas=(0.9, 0.95))
        chosen = muon([table, *others], self.muon_rate, plain, others=[table]) if self.algorithm == "muon" else plain
        return Clipped(chosen, self.clip)

    def rate(self, step: int) -> float:
        return min(1.0, (step + 1) / max(1, self.warmup))

    def probe(self) -> Samples:
        """Pieces of a text in this package, so that nodes with different texts are compared on the same inputs.

        With another tokenizer than bytes they are any tokens: the text's bytes, spread over the vocabulary.
        """
        shape = self.shape
        raw = np.frombuffer(PROBE.read_bytes(), np.uint8)
        starts = np.linspace(0, len(raw), PROBE_INPUTS, endpoint=False).astype(np.int64)
        windows = raw[(starts[:, None] + np.arange(min(shape.context, PROBE_TOKENS))) % len(raw)]
        if shape.vocabulary > ByteTokenizer.size:
            windows = (windows.astype(np.int64) * shape.vocabulary // ByteTokenizer.size).astype(np.int32)
        return {"x": torch.from_numpy(windows)}

    # ---- texts ----

    @property
    def cutter(self) -> Tokenizer:
        """What turns texts into tokens and back; UsageError where nobody knows what the tokens mean."""
        if self._cuts is not None:
            return self._cuts
        if self.tokenizer in ("", BYTES):
            return ByteTokenizer()
        raise UsageError(
            f"task {self.name}: what the tokens mean is not known here; put the run's tokenizer.json next to the data"
        )

    def generate(self, model: nn.Module, prompt: str, how: Generation) -> Iterator[str]:
        assert isinstance(model, Decoder | MixedDecoder)
        cutter = self.cutter
        tokens = cutter.encode(prompt or "\n")
        if len(tokens) > model.context:
            raise UsageError(
                f"the prompt has {len(tokens):,} tokens, and this model looks at {model.context:,} at most; shorten it"
            )
        return as_text(next_tokens(model, tokens, how), cutter)

    def as_samples(self, prompt: str) -> Samples:
        return {"x": torch.tensor([self.cutter.encode(prompt)])}

    def preview(self, sample: Samples) -> str:
        known = self._cuts is not None or self.tokenizer != TOKENS
        return " ".join(self.cutter.decode(sample["x"][0].tolist()).split()) if known else ""

    def sample(self, model: nn.Module) -> str:
        if self._cuts is None and self.tokenizer == TOKENS:
            return ""
        return SAMPLE_PROMPT + "".join(self.generate(model, SAMPLE_PROMPT, SAMPLE))

    def figures(self, evaluation: Evaluation) -> tuple[Figure, ...]:
        if self.tokenizer in ("", BYTES):
            help = "Bits that the model needs for a byte of the test texts: lower is better, 8 is knowing nothing."
            return (Figure("bits_per_byte", evaluation.loss / math.log(2), "bits per byte", help=help),)
        help = "Between how many tokens the model is undecided on the test texts, on average: lower is better."
        return (Figure("perplexity", math.exp(min(50.0, evaluation.loss)), "perplexity", help=help),)

    def export_facts(self) -> Mapping[str, str]:
        return {} if self._cuts is None else {"tokenizer": self._cuts.content.decode()}

    def use_facts(self, facts: Mapping[str, str]) -> None:
        if "tokenizer" in facts:
            self._cuts = FileTokenizer(facts["tokenizer"].encode(), "the exported tokenizer")


def _token_losses(logits: Tensor, batch: Samples) -> Tensor:
    """The loss of each token but the first, (samples, tokens)."""
    x = batch["x"].long()
    each = functional.cross_entropy(logits.flatten(0, 1).float(), x[:, 1:].flatten(), reduction="none")
    return each.view(len(x), -1)


@cache
def _open(source: str, context: int, vocabulary: int, cuts: FileTokenizer | None) -> Corpus:
    return open_corpus(source, context, vocabulary, cuts)
