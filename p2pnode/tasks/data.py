"""The samples of a task, wherever they are: tensors in memory, or rows of a map-style data set that are read by index.

stream.py has those that come one after the other. Whatever `Task.data` and `Task.test_data` return becomes a `Data`. It
gives rows as columns of equal length, knows the columns without reading all rows, and says which rows cannot be read.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from ..wire.errors import P2pnodeError

Samples = Mapping[str, Tensor]  # columns of equal length; row i of all of them is sample i
TaskData = Samples | Any  # what a task may return: also a Dataset, or a DataLoader
Form = dict[str, tuple[torch.dtype, torch.Size]]  # the type and shape of a sample in each column

WHOLE_BYTES = 256 << 20  # of data in memory that are looked at row by row when a node starts
HASHED_ROWS = 64  # of data that are read by index
TEST_ROWS = 10_000  # of test data that are read by index
FIRST_ROWS = 8  # tried in order to learn what a row looks like
MAX_REMEMBERED = 100_000  # rows that could not be read
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}  # torch has few operations
NO_DATA = (list, tuple, str, bytes, Tensor, np.ndarray)  # have rows, and are no data sets
TUPLE_NAMES = ("x", "y")  # of the columns where a sample is a tuple


class BadData(ValueError):
    """Data or one of their rows are not what a task may return; the message goes on from "data() "."""


class Data(ABC):
    """Samples by number. They are read-only and shared: many trainers use the same."""

    empty: dict[str, Tensor]  # the columns, without rows
    passes: int = 0  # through a stream, begun so far
    in_memory: bool = True
    is_stream: bool = False  # rows have no meaning: samples come one after the other, nobody knows how many

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Some rows, and the places in `rows` that could be read; None instead where that is all of them."""

    @abstractmethod
    def pieces(self, size: int) -> Iterator[Samples]:
        """All readable rows: at once where they are in memory, else `size` at a time."""

    def reader(self, seed: int) -> Data:
        """The same data for one trainer. Of a stream each trainer has a reader of its own, by its seed."""
        return self

    @property
    def available(self) -> int:
        """The number of samples, as far as is known."""
        return len(self)

    def again(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Like `read`, only to look at samples: it uses up nothing of a stream."""
        return self.read(rows)

    @property
    def problems(self) -> dict[int, str]:
        """Why rows could not be read, by row, the oldest first."""
        return {}

    @property
    def kind(self) -> str:
        """Where the samples are: "memory", "index" or "stream"."""
        return "stream" if self.is_stream else "memory" if self.in_memory else "index"

    @property
    def small(self) -> bool:
        """Whether a node may look at every row when it starts."""
        return self.in_memory and len(self) * self.sample_bytes <= WHOLE_BYTES

    @property
    def sample_bytes(self) -> int:
        """The memory that one sample takes."""
        return sum(math.prod(column.shape[1:]) * column.element_size() for column in self.empty.values())

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The classes of all rows of a data set that lists them apart from the rows; else None."""
        return None

    def rows(self, rows: Tensor) -> dict[str, Tensor]:
        """Some rows; BadData when one cannot be read."""
        found, kept = self.read(rows)
        if kept is not None:
            missing = sorted(set(range(len(rows))) - set(kept.tolist()))
            raise BadData(self.problem(int(rows[missing[0]])))
        return found

    def first(self, count: int) -> dict[str, Tensor]:
        """The first rows, at most `count`; BadData when one cannot be read."""
        return self.rows(torch.arange(min(count, len(self))))

    def spread(self, count: int) -> Data:
        """Returns about `count` rows, evenly spread; all where there are no more. They are not read yet."""
        if len(self) <= count:
            return self
        return SomeRows(self, torch.from_numpy(np.linspace(0, len(self) - 1, count).astype(np.int64)))

    def problem(self, row: int) -> str:
        """Why a row cannot be read; "" where it can, as far as is known."""
        return self.problems.get(row, "")

    def hash(self) -> str:
        """The hash by which nodes see whether they have the same data: of all rows, or of some of large data."""
        if self.small:
            return hash_columns(self.rows(torch.arange(len(self))))
        digest = blake3(f"{len(self)} rows".encode())
        for piece in self.spread(HASHED_ROWS).pieces(HASHED_ROWS):
            digest.update(hash_columns(piece).encode())
        return digest.hexdigest()


class InMemory(Data):
    """Columns of tensors, which the task may have mapped into memory from a file."""

    def __init__(self, columns: Samples) -> None:
        """Takes columns of equal length; ValueError when they are not."""
        self.columns = columns
        self._count = length(columns)
        self.empty = {name: column[:0] for name, column in columns.items()}

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        return {name: column[rows] for name, column in self.columns.items()}, None

    def pieces(self, size: int) -> Iterator[Samples]:
        yield self.columns


class SomeRows(Data):
    """Some rows of other data."""

    def __init__(self, data: Data, rows: Tensor) -> None:
        self._data = data
        self._rows = rows
        self.empty = data.empty
        self.in_memory = data.in_memory
        self.is_stream = data.is_stream

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        every = self._data.labels
        return None if every is None else every[self._rows.numpy()]

    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        return self._data.read(self._rows[rows])

    def pieces(self, size: int) -> Iterator[Samples]:
        yield from _pieces(self, len(self) if self.in_memory else size)

    @property
    def problems(self) -> dict[int, str]:
        return self._data.problems


class Indexed(Data):
    """Rows of a map-style data set, read when they are needed. A row is a dict, a tuple (x, y) or a single value.

    Nothing is read here but the first row, which says what the columns are. A row that raises, differs in shape or is
    not finite is left out from then on; `problems` says why.
    """

    in_memory = False

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any] | None = None) -> None:
        """Takes a data set with `__len__` and `__getitem__`; BadData when it has none, or no row can be read.

        `collate` makes a batch of samples, where it is not enough to stack them.
        """
        self._dataset: Any = dataset
        self._many = getattr(dataset, "__getitems__", None)
        self._collate = collate
        self._lock = threading.Lock()  # many data sets can be read by one thread only
        try:
            self._count = len(dataset)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            raise BadData(
                "gave a data set without a length; give it __len__(), or make it an IterableDataset"
            ) from None
        if self._count == 0:
            raise BadData("gave no samples")
        self._problems: dict[int, str] = {}
        self._outage = ""  # why rows that came together could not be read
        self.form, self.empty = self._learn_form()

    def __len__(self) -> int:
        return self._count

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The data set's `targets`, as torchvision and Subset have them; None where there are none."""
        found = _targets(self._dataset)
        if found is None:
            return None
        labels = np.asarray(found)
        return labels.astype(np.int64) if labels.shape == (self._count,) and labels.dtype.kind in "iu" else None

    @property
    def problems(self) -> dict[int, str]:
        return self._problems

    def problem(self, row: int) -> str:
        return self._problems.get(row, self._outage)

    def pieces(self, size: int) -> Iterator[Samples]:
        yield from _pieces(self, size)

    def read(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        wanted = rows.tolist()
        with self._lock:
            if not self._problems.keys() & set(wanted):
                try:
                    found = self._together(wanted)
                    if not difference(found, self.form, len(wanted)):
                        return found, None
                except Exception:  # the user's code may raise anything; the rows one by one show which does
                    pass
            return self._one_by_one(wanted)

    def _together(self, wanted: list[int]) -> dict[str, Tensor]:
        """The rows as columns, by one call where the data set offers that."""
        found = [self._dataset[row] for row in wanted] if self._many is None else self._many(wanted)
        if self._collate is not None:
            found = columns_of(self._collate(found))
        if isinstance(found, Mapping):
            return {name: as_tensor(name, column) for name, column in found.items()}
        return stacked([columns_of(sample) for sample in found])

    def _one_by_one(self, wanted: list[int]) -> tuple[dict[str, Tensor], Tensor | None]:
        good: list[dict[str, Tensor]] = []
        kept: list[int] = []
        known = set(self._problems)
        for place, row in enumerate(wanted):
            one = None if row in self._problems else self._one(row)
            if one is not None:
                good.append(one)
                kept.append(place)
        if not good and len(wanted) > 1:  # nothing can be read now, which may pass: the rows are tried again
            for row in set(wanted) - known:
                self._outage = self._problems.pop(row, self._outage)
        found = {name: torch.cat([one[name] for one in good]) if good else empty for name, empty in self.empty.items()}
        return found, None if len(kept) == len(wanted) else torch.tensor(kept, dtype=torch.int64)

    def _one(self, row: int) -> dict[str, Tensor] | None:
        """One row as columns; None, with a note in `problems`, when it cannot be used."""
        try:
            found = self._together([row])
            problem = difference(found, self.form, 1)
            if not problem:
                return found
        except Exception as error:  # the user's code may raise anything
            problem = self._words(error)
        if len(self._problems) < MAX_REMEMBERED:
            self._problems[row] = f"row {row} {problem}"
        return None

    def _words(self, error: Exception) -> str:
        lies = f", though len() says {self._count:,}" if isinstance(error, IndexError) else ""
        return f"{error_words(error)}{lies}"

    def _learn_form(self) -> tuple[Form, dict[str, Tensor]]:
        """What the first row that can be read looks like."""
        problem = ""
        for row in range(min(FIRST_ROWS, self._count)):
            try:
                return form_of(self._together([row]))
            except Exception as error:  # the user's code may raise anything
                problem = problem or f"row {row} {self._words(error)}"
        raise BadData(f"gave a data set that cannot be read: {problem}")


def as_data(found: object) -> Data:
    """What a task returned as Data; BadData, which is a ValueError, when it is nothing of the kind."""
    if isinstance(found, Mapping):
        if not found:
            raise BadData("gave no samples")
        if not all(isinstance(column, Tensor) for column in found.values()):
            raise BadData("must give a dict of tensors, such as {'x': …, 'y': …}, or a torch Dataset")
        try:
            data = InMemory(found)
        except ValueError as error:
            raise BadData(f"gave {error}") from None
        if len(data) == 0:
            raise BadData("gave no samples")
        return data
    from .stream import Streamed, is_stream  # which imports this file

    if is_stream(found):
        return Streamed(found)
    if isinstance(found, DataLoader):
        return Indexed(found.dataset, None if found.collate_fn is default_collate else found.collate_fn)
    if not hasattr(found, "__getitem__") or isinstance(found, NO_DATA):
        raise BadData("must give a dict of tensors, such as {'x': …, 'y': …}, or a torch Dataset")
    return Indexed(found)  # type: ignore[arg-type]


def as_test_data(found: object) -> Data:
    """The same for test data: of many rows that must be read some from all over, of a stream the first ones."""
    from .stream import first_samples, is_stream

    if is_stream(found):
        return first_samples(found)
    data = as_data(found)
    return data if data.in_memory else data.spread(TEST_ROWS)


def form_of(found: Samples) -> tuple[Form, dict[str, Tensor]]:
    """The type and shape of a sample in each column, and the columns without rows."""
    form = {name: (column.dtype, column.shape[1:]) for name, column in found.items()}
    return form, {name: column[:0].clone() for name, column in found.items()}


def difference(found: Samples, form: Form, count: int | None = None) -> str:
    """How rows differ from `count` (or any number of) good ones of this form, in words; "" when they do not."""
    if found.keys() != form.keys():
        return f"has the columns {', '.join(found)}, and the first one has {', '.join(form)}"
    count = length(found) if count is None else count
    for name, column in found.items():
        kind, shape = form[name]
        if len(column) != count or column.shape[1:] != shape:
            return f"has {name} of shape {tuple(column.shape[1:])}, and the first one {tuple(shape)}"
        if column.dtype != kind:
            return f"has {name} of type {column.dtype}, and the first one {kind}"
        if column.is_floating_point() and not is_finite(column):
            return f"has values in {name} that are not finite"
    return ""


def error_words(error: Exception) -> str:
    """What the user's code raised while it made a sample, and where; goes on from "row 3"."""
    if isinstance(error, BadData):
        return str(error)
    if isinstance(error, P2pnodeError):
        return f"cannot be read: {error}"
    said = (str(error).strip().splitlines() or ["no message"])[0][:120]
    return f"raised {type(error).__name__}: {said}{_where(error)}"


def columns_of(sample: Any) -> dict[str, Any]:
    """The values of one sample by the names of their columns; BadData when it is no sample."""
    if isinstance(sample, Mapping):
        return dict(sample)
    if isinstance(sample, Tensor | np.ndarray | np.generic | int | float):
        return {"x": sample}
    if hasattr(sample, "_asdict"):
        return dict(sample._asdict())
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return {part.name: getattr(sample, part.name) for part in dataclasses.fields(sample)}
    if isinstance(sample, tuple | list) and len(sample) in (1, 2):
        return dict(zip(TUPLE_NAMES, sample, strict=False))
    if isinstance(sample, tuple | list):
        raise BadData(f"is a tuple of {len(sample)} values; give them names: return a dict")
    raise BadData(f"is a {type(sample).__name__}; return a dict of tensors or arrays, or a tuple (x, y)")


def stacked(samples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """Samples as columns; an exception when they do not have the same columns and shapes."""
    return {name: _stacked(name, [sample[name] for sample in samples]) for name in samples[0]}


def _stacked(name: str, values: list[Any]) -> Tensor:
    first = values[0]
    if isinstance(first, Tensor):
        found = torch.stack(values)
    elif isinstance(first, np.ndarray):
        found = torch.from_numpy(np.stack(values))
    else:
        return as_tensor(name, values)
    return found.to(WIDER[found.dtype]) if found.dtype in WIDER else found


def as_tensor(name: str, values: Any) -> Tensor:
    """Numbers as a tensor; BadData when they are something else."""
    try:
        found = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        one = values[0] if isinstance(values, list) and values else values
        raise BadData(f"has a {type(one).__name__} in {name!r}; give tensors, arrays or numbers") from None
    if found.dtype == torch.float64 and not isinstance(values, Tensor | np.ndarray):
        found = found.float()  # Python's own numbers
    return found.to(WIDER[found.dtype]) if found.dtype in WIDER else found


def is_finite(column: Tensor) -> bool:
    """Whether all numbers are finite. The sum is enough in most cases, and one pass."""
    return math.isfinite(column.sum().item()) or bool(torch.isfinite(column).all())


def length(samples: Samples) -> int:
    """The number of samples; ValueError when the columns have different lengths."""
    lengths = {name: len(column) for name, column in samples.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of unequal length: {', '.join(f'{name} {n}' for name, n in lengths.items())}")
    return next(iter(lengths.values()), 0)


def rows(samples: Samples, which: slice | Tensor) -> dict[str, Tensor]:
    """Some of the samples. A slice shares memory, an index copies."""
    return {name: column[which] for name, column in samples.items()}


def hash_columns(samples: Samples) -> str:
    """The hash of samples, columns by name."""
    digest = blake3()
    for name, column in sorted(samples.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column.numpy()).tobytes())
    return digest.hexdigest()


def _pieces(data: Data, size: int) -> Iterator[Samples]:
    for start in range(0, len(data), size):
        found, _ = data.read(torch.arange(start, min(len(data), start + size)))
        if length(found):
            yield found


def _targets(dataset: Any) -> Any:
    """The classes that a data set lists apart from its rows, as torchvision's do, also through Subset; else None."""
    if isinstance(dataset, Subset):
        inner = _targets(dataset.dataset)
        return None if inner is None else np.asarray(inner)[np.asarray(dataset.indices)]
    return getattr(dataset, "targets", None)


def _where(error: BaseException) -> str:
    from .errors import error_place  # errors.py imports the contract, which imports this file

    place = error_place(error)
    return f" ({place})" if place else ""
