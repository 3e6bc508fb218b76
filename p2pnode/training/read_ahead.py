"""Reads the rows of the next batch while the model trains on this one, where reading takes a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from ..tasks.data import Data

SLOW = 0.001  # seconds for a batch, from which a thread pays off

Found = tuple[dict[str, Tensor], Tensor | None]


class ReadAhead:
    """Data of one trainer, read by a thread of its own once reading a batch has taken longer than SLOW.

    What is read is the same as without it, because rows are the same whenever they are read.
    """

    def __init__(self, data: Data, clock: Callable[[], float] = time.perf_counter) -> None:
        self._data = data
        self._clock = clock
        self._seconds = 0.0  # that the last batch took to read
        self._thread: ThreadPoolExecutor | None = None
        self._expected: tuple[Tensor, Future[Found]] | None = None

    def read(self, rows: Tensor) -> Found:
        """Some rows, as `Data.read` gives them."""
        expected, self._expected = self._expected, None
        if expected is not None and torch.equal(expected[0], rows):
            return expected[1].result()
        return self._read(rows)

    def expect(self, rows: Tensor) -> None:
        """Begins to read the rows that will be wanted next, if that is worth a thread."""
        if self._seconds < SLOW:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read ahead")
        self._expected = rows, self._thread.submit(self._read, rows)

    def _read(self, rows: Tensor) -> Found:
        begun = self._clock()
        try:
            return self._data.read(rows)
        finally:
            self._seconds = self._clock() - begun
