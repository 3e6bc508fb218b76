"""The samples of a loop whose shards may travel: the user's own data set, and what other members sent.

The node's thread reads the data set to cut shards; the loop reads it through `SharedData`, so that a data set that only
one thread may read is read by one at a time.
"""

from __future__ import annotations

import bisect
import dataclasses
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...shards.samples import encode_samples, sample_layout
from ...tasks.data import BadData, Data, Samples, as_data, columns_of, length
from ...tasks.stream import is_stream
from ...wire.errors import UsageError
from .plan import PlannedColumn

LABELS = ("y", "label", "labels", "target", "targets")  # columns that may have the class of a sample
MAX_CLASSES = 1024
LOOKED_AT = 1000  # rows, to learn which numbers a column may have
FAR_OUT = 100.0  # numbers of others may be this much larger than the founder's
KEPT_BYTES = 256 << 20  # of samples of others that are in memory


class OneAtATime(Dataset[Any]):
    """A user's data set, read by one thread at a time. Processes forked for data have no other thread that reads."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def targets(self) -> Any:
        return getattr(self.dataset, "targets", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Any:
        if os.getpid() != self._owner:
            return self.dataset[row]
        with self._lock:
            return self.dataset[row]

    def __reduce__(self) -> Any:
        return OneAtATime, (self.dataset,)


class ColumnRows(Dataset[dict[str, Tensor]]):
    """A dict of tensors as a data set: each row is a dict."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return length(self._columns)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {name: column[row] for name, column in self._columns.items()}


class SharedData(Dataset[Any]):
    """A map-style data set: the user's samples first, then those of other members, in the form of the user's own.

    It grows while the run goes on, and rows never change, so samplers and loaders may use it as they are: an epoch has
    the samples that were there when it began. It can be sent to worker processes, which see it as it was then.
    """

    def __init__(self, dataset: Any) -> None:
        """UsageError when this is nothing whose shards could travel. Reads the first row some times."""
        own: Any = ColumnRows(dataset) if isinstance(dataset, Mapping) else OneAtATime(_map_style(dataset))
        self._own = own
        self.classes = _classes(dataset)
        try:
            self.rows: Data | None = as_data(dataset if isinstance(dataset, Mapping) else own)
            self._count = len(self.rows)
            self._like = self._own[0]
            first, again = (_encoded(self.rows.first(1)) for _ in range(2))
        except (BadData, ValueError, TypeError) as problem:
            raise UsageError(f"share= {problem}; leave it out, and data stay where they are") from None
        except Exception as error:  # the user's code may raise anything
            raise UsageError(f"share= cannot be read: row 0 raised {type(error).__name__}: {error}") from None
        if first != again:
            raise UsageError(
                "share= gives other values each time a row is read; give the data set without random transforms"
            )
        self._received: tuple[tuple[int, Mapping[str, NDArray[Any]]], ...] = ()  # the row after each, and its columns
        self._kept_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "rows": None}  # which the node alone reads

    # ---- for the loop ----

    def __len__(self) -> int:
        return self._received[-1][0] if self._received else self._count

    @property
    def own(self) -> int:
        """How many samples are the user's own: the first ones."""
        return self._count

    def __getitem__(self, row: int) -> Any:
        if row < 0:
            row += len(self)
        if 0 <= row < self._count:
            return self._own[row]
        received = self._received
        place = bisect.bisect_right(received, row, key=lambda one: one[0])
        if row < 0 or place == len(received):
            raise IndexError(f"row {row} of {len(self)} samples")
        start = received[place - 1][0] if place else self._count
        return in_form_of(self._like, {name: column[row - start] for name, column in received[place][1].items()})

    # ---- for the node ----

    def data(self) -> Data:
        """The user's own rows, as the node reads them."""
        assert self.rows is not None
        return self.rows

    def add(self, columns: Mapping[str, NDArray[Any]]) -> bool:
        """Take samples of another member in, at the end; returns False when that would take too much memory."""
        size = sum(column.nbytes for column in columns.values())
        if self._kept_bytes + size > KEPT_BYTES:
            return False
        self._kept_bytes += size
        end = len(self) + len(next(iter(columns.values())))
        self._received = (*self._received, (end, columns))  # at once, since the loop reads meanwhile
        return True

    def form(self) -> tuple[PlannedColumn, ...]:
        """What samples look like: types and shapes."""
        layout = sample_layout({name: column.numpy() for name, column in self.data().empty.items()})
        return tuple(PlannedColumn(name, column.kind, column.shape, 0.0, 0.0) for name, column in layout.items())

    def columns(self) -> tuple[PlannedColumn, ...]:
        """Heavy. The same for the plan, with the numbers that samples may have."""
        data = self.data()
        layout = {column.name: column for column in self.form()}
        pieces = list(data.spread(LOOKED_AT).pieces(LOOKED_AT))
        found = []
        for name, column in layout.items():
            some = [piece[name].double() for piece in pieces]
            low, high = min(float(one.min()) for one in some), max(float(one.max()) for one in some)
            if np.dtype(column.kind).kind == "f":
                high = FAR_OUT * max(abs(low), abs(high), 1.0)
                low = -high
            elif np.dtype(column.kind).itemsize == 1:
                low, high = -128.0, 255.0
            elif name == self.label_column:
                low, high = min(0.0, low), max(high, self.classes - 1.0)
            found.append(PlannedColumn(name, column.kind, column.shape, low, high))
        return tuple(found)

    @property
    def label_column(self) -> str:
        """The column with the classes of samples; "" where there is none."""
        for name, column in self.data().empty.items():
            if name in LABELS and column.ndim == 1 and not column.is_floating_point():
                return name
        return ""


def _encoded(samples: Samples) -> bytes:
    return encode_samples({name: column.numpy() for name, column in samples.items()})


def _map_style(dataset: Any) -> Any:
    """The same; UsageError when its rows cannot be read by number."""
    if isinstance(dataset, DataLoader):
        raise UsageError("share= is a DataLoader; give its data set, and make the loader of swarm.data")
    if is_stream(dataset):
        raise UsageError("share= is a stream, which has no shards that could travel; give a map-style data set")
    if isinstance(dataset, str | bytes) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise UsageError(f"share= is a {type(dataset).__name__}; give a map-style data set or a dict of tensors")
    return dataset


def _classes(dataset: Any) -> int:
    """How many classes a data set says that there are, as torchvision's do by `classes`; 0 where it does not."""
    found = getattr(dataset, "classes", 0)
    count = found if isinstance(found, int) else len(found) if hasattr(found, "__len__") else 0
    return min(count, MAX_CLASSES)


def in_form_of(like: Any, values: Mapping[str, Any]) -> Any:
    """A sample with these values that looks like another one: a tuple, a dict, or what else the user's code expects."""
    forms = columns_of(like)
    found = {name: _value(forms[name], values[name]) for name in forms}
    if isinstance(like, Mapping):
        return found
    if hasattr(like, "_asdict") or (dataclasses.is_dataclass(like) and not isinstance(like, type)):
        return type(like)(**found)
    if isinstance(like, tuple | list):
        return type(like)(found.values())
    return found["x"]


def _value(like: Any, value: Any) -> Any:
    if isinstance(like, Tensor):
        return torch.from_numpy(np.array(value)).to(like.dtype)
    if isinstance(like, np.ndarray | np.generic):
        found = np.array(value, like.dtype)
        return found if isinstance(like, np.ndarray) else found[()]
    return type(like)(value.item()) if isinstance(like, bool | int | float) else np.array(value)
