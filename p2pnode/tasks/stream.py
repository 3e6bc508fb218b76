"""Samples that come one after the other: an IterableDataset, or a DataLoader over one. They have no numbers.

Each trainer reads the stream by an iterator of its own. Before a pass, `set_epoch` is called if the stream has it, and
the random numbers of torch, numpy and Python are seeded, both by a number that differs from node to node and from pass
to pass: that is how nodes get different samples.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from .data import (
    MAX_REMEMBERED,
    BadData,
    Data,
    InMemory,
    Samples,
    as_tensor,
    columns_of,
    difference,
    error_words,
    form_of,
    length,
    rows,
    stacked,
)

NOMINAL = 1 << 16  # rows that a stream pretends to have, for code that goes through rows
WAIT = 60.0  # seconds for the first sample
RECENT = 16  # batches that can be looked at again
BAD_READS = 16  # without a good sample, until reading gives up
TEST_SAMPLES = 1000  # of a stream that is given as test data,
TEST_BYTES = 64 << 20  # and no more than this


def is_stream(found: object) -> bool:
    """Whether a task returned a stream."""
    return isinstance(found.dataset if isinstance(found, DataLoader) else found, IterableDataset)


class Streamed(Data):
    """A stream as data: rows have no meaning, and whoever trains on it makes a reader of its own."""

    in_memory = False
    is_stream = True

    def __init__(self, stream: Any) -> None:
        """Waits for the first sample, which says what the columns are; BadData when none comes."""
        self._stream = stream
        self.form, self.empty = form_of(_first_sample(stream))
        self._reader = self.reader(0)

    def __len__(self) -> int:
        return NOMINAL

    def reader(self, seed: int) -> StreamReader:
        return StreamReader(self._stream, self, seed)

    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        return self._reader.read(rows)

    def pieces(self, size: int) -> Iterator[Samples]:
        yield self._reader.read(torch.arange(size))[0]

    def hash(self) -> str:
        """A hash of the samples' form only: their content is not known without reading them."""
        return blake3(f"stream {sorted((name, str(form)) for name, form in self.form.items())}".encode()).hexdigest()


class StreamReader(Data):
    """One trainer's way through a stream. A pass that ends or raises is followed by the next one."""

    in_memory = False
    is_stream = True

    def __init__(self, stream: Any, data: Streamed, seed: int) -> None:
        self.empty = data.empty
        self.passes = 0  # begun so far
        self.taken = 0  # samples
        self._stream = stream
        self._form = data.form
        self._seed = seed
        self._randomness = Randomness()
        self._batched = is_batched(stream)
        self._samples: Iterator[Any] | None = None
        self._in_pass = 0  # samples of this pass so far
        self._waiting: dict[str, Tensor] = data.empty
        self._recent: deque[dict[str, Tensor]] = deque(maxlen=RECENT)
        self._problems: dict[int, str] = {}

    def __len__(self) -> int:
        return NOMINAL

    @property
    def problems(self) -> dict[int, str]:
        return self._problems

    @property
    def available(self) -> int:
        """The samples read so far: how many there are, nobody knows."""
        return max(1, self.taken)

    def pieces(self, size: int) -> Iterator[Samples]:
        yield self.read(torch.arange(size))[0]

    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Reads the next samples of the stream, one for each row; BadData when it gives no good ones."""
        wanted, there, tries, pieces = len(rows), length(self._waiting), 0, [self._waiting]
        with self._randomness:
            while there < wanted:
                pieces.append(self._next(wanted - there))
                more = length(pieces[-1])
                there, tries = there + more, 0 if more else tries + 1
                if tries == BAD_READS:
                    last = next(reversed(self._problems.values()), "it gives nothing")
                    raise BadData(f"gave a stream without good samples; {last}")
        together = {name: torch.cat([piece[name] for piece in pieces]) for name in self.empty}
        found = {name: column[:wanted] for name, column in together.items()}
        self._waiting = {name: column[wanted:] for name, column in together.items()}
        self.taken += wanted
        self._recent.append(found)
        return found, None

    def again(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Samples that were read lately, where there are any: looking at samples must not use up the stream."""
        if not self._recent:
            return self.read(rows)
        there = {name: torch.cat([batch[name] for batch in self._recent]) for name in self.empty}
        return {name: column[rows % len(column)] for name, column in there.items()}, None

    def _next(self, count: int) -> dict[str, Tensor]:
        """The good ones of the next samples: `count` at most, or what a DataLoader gives; none at the end of a pass."""
        found: list[Any] = []
        try:
            samples = self._begin_pass() if self._samples is None else self._samples
            found.extend(itertools.islice(samples, 1 if self._batched else count))
            if not found:
                self._samples = None
                if not self._in_pass:
                    self._note(1, "never came")
        except Exception as error:  # the user's code may raise anything
            self._samples = None
            self._note(self._in_pass + len(found) + 1, error_words(error))
        good = self._together(found)
        if good is None:
            each = [self._one(number, sample) for number, sample in enumerate(found, self._in_pass + 1)]
            pieces = [one for one in each if one is not None]
            good = {name: torch.cat([column, *(one[name] for one in pieces)]) for name, column in self.empty.items()}
        self._in_pass += len(found)
        return good

    def _together(self, found: list[Any]) -> dict[str, Tensor] | None:
        """Samples as columns; None when something is wrong with one of them."""
        try:
            columns = as_columns(found, self._batched) if found else self.empty
            return None if difference(columns, self._form) else columns
        except Exception:  # one by one they show what is wrong
            return None

    def _one(self, number: int, sample: Any) -> dict[str, Tensor] | None:
        try:
            columns = as_columns([sample], self._batched)
            problem = difference(columns, self._form)
            if not problem:
                return columns
        except Exception as error:  # samples may be anything
            problem = error_words(error)
        self._note(number, problem)
        return None

    def _note(self, number: int, problem: str) -> None:
        if len(self._problems) < MAX_REMEMBERED:
            self._problems[len(self._problems)] = f"sample {number} of pass {self.passes} {problem}"

    def _begin_pass(self) -> Iterator[Any]:
        number = pass_seed(self._seed, self.passes)
        self.passes, self._in_pass = self.passes + 1, 0
        self._samples = begun(self._stream, number)
        return self._samples


def begun(stream: Any, number: int) -> Iterator[Any]:
    """Begins a pass through a stream that is seeded with `number`, within the randomness of its reader."""
    seed_all(number)
    tells = (getattr(one, "set_epoch", None) for one in (stream, getattr(stream, "dataset", None)))
    tell = next((tell for tell in tells if callable(tell)), None)
    if tell is not None:
        tell(number)
    return iter(stream)


def pass_seed(seed: int, number: int) -> int:
    """The number that one reader's pass is seeded with."""
    return random.Random(f"{seed} {number}").getrandbits(31)


def first_samples(stream: Any) -> InMemory:
    """The first samples of a stream in memory, for test data; BadData when there is none."""
    data, found = Streamed(stream), list[dict[str, Tensor]]()
    most = max(1, min(TEST_SAMPLES, TEST_BYTES // max(1, data.sample_bytes)))
    with Randomness():
        for sample in begun(stream, pass_seed(0, 0)):
            columns = as_columns([sample], is_batched(stream))
            problem = difference(columns, data.form)
            if problem:
                raise BadData(f"gave a stream of which one sample {problem}")
            found.append(columns)
            if len(found) * length(columns) >= most:
                break
    return InMemory({name: torch.cat([one[name] for one in found])[:most] for name in data.form})


def _first_sample(stream: Any) -> dict[str, Tensor]:
    """The first sample of a stream. It is read in a thread, because a stream may never yield."""
    found: list[dict[str, Tensor] | BadData] = []

    def look() -> None:
        try:
            for first in stream:
                found.append(rows(as_columns([first], is_batched(stream)), slice(0, 1)))
                return
            found.append(BadData("gave no samples"))
        except Exception as error:  # the user's code may raise anything
            found.append(BadData(f"gave a stream whose first sample {error_words(error)}"))

    thread = threading.Thread(target=look, name="first sample", daemon=True)
    thread.start()
    thread.join(WAIT)
    if not found:
        raise BadData(f"gave a stream without a sample for {WAIT:g} seconds; look at what it waits for")
    if isinstance(found[0], BadData):
        raise found[0]
    return found[0]


def is_batched(stream: Any) -> bool:
    """Whether a stream gives many samples at a time."""
    return isinstance(stream, DataLoader) and stream.batch_size is not None


def as_columns(found: list[Any], batched: bool) -> dict[str, Tensor]:
    """Samples, or the one batch that there is, as columns."""
    if not batched:
        return stacked([columns_of(sample) for sample in found])
    return {name: as_tensor(name, column) for name, column in columns_of(found[0]).items()}


class Randomness(contextlib.AbstractContextManager[None]):
    """Random numbers of one reader: inside, torch's, numpy's and Python's generators are its own."""

    def __init__(self) -> None:
        self._own: tuple[Any, Any, Any] | None = None
        self._outside: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> None:
        self._outside = _states()
        if self._own is not None:
            _set_states(self._own)

    def __exit__(self, *error: object) -> None:
        assert self._outside is not None
        self._own = _states()
        _set_states(self._outside)


def seed_all(number: int) -> None:
    """Seeds torch's, numpy's and Python's random numbers."""
    random.seed(number)
    np.random.seed(number)
    torch.default_generator.manual_seed(number)


def _states() -> tuple[Any, Any, Any]:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()


def _set_states(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.default_generator.set_state(states[2])
