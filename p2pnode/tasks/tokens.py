"""A file of tokens, such as nanoGPT's train.bin, as windows of equal length. Only the windows needed are read.

Windows are read with `pread`, not through a memory map: if the file shrinks while the node runs, that is an error with
a message, whereas a map would end the process; and address space is not a limit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..wire.errors import LocalProblem, UsageError

KINDS = ("uint8", "uint16", "uint32", "int32", "int64")


class Tokens(Dataset[dict[str, Tensor]]):
    """Windows of `context` tokens (x) with the token that follows each (y): row i begins at token i · `context`.

    `part` cuts a piece out of the file, as shares of it: (0, 0.99) for training and (0.99, 1) for testing, say.
    """

    def __init__(
        self, path: str | Path, context: int, dtype: str = "uint16", part: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """Opens the file and reads nothing; UsageError when it is not there or has less than one window."""
        self.path = Path(path).expanduser()
        self.context = context
        self.dtype = np.dtype(dtype)
        if context < 1 or self.dtype.name not in KINDS or not 0 <= part[0] < part[1] <= 1:
            raise UsageError(
                f"Tokens takes a context from 1, a dtype of {', '.join(KINDS)} and a part within (0, 1); "
                f"not {context}, {dtype} and {part}"
            )
        self._file = self._open()
        self._fits = np.int32 if self.dtype.itemsize < 4 or self.dtype.name == "int32" else np.int64
        tokens = os.fstat(self._file).st_size // self.dtype.itemsize
        windows = max(0, tokens - 1) // context
        self._first, last = (round(windows * share) for share in part)
        self._count = last - self._first
        if self._count < 1:
            raise UsageError(
                f"{self.path} has {tokens:,} tokens of {self.dtype.itemsize} bytes, too few for a window of {context} "
                f"in its part from {part[0]:g} to {part[1]:g}"
            )

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be opened: {error.strerror}; check the path") from None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {name: column[0] for name, column in self.__getitems__([row]).items()}

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """Some windows as columns; IndexError for a row beyond the end, LocalProblem when the file has shrunk."""
        size = self.dtype.itemsize
        found = np.empty((len(rows), self.context + 1), self.dtype)
        for place, row in enumerate(rows):
            if not 0 <= row < self._count:
                raise IndexError(f"row {row} of {self._count:,}")
            start = (self._first + row) * self.context * size
            if os.preadv(self._file, [found[place].data], start) != found[place].nbytes:
                raise LocalProblem(f"{self.path} ends before byte {start + found[place].nbytes:,}; it was cut off")
        whole = torch.from_numpy(found.astype(self._fits))
        return {"x": whole[:, :-1], "y": whole[:, 1:]}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._file = self._open()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)
