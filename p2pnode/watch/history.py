"""Pictures over time, within a bound: all of the latest, ever fewer of older ones; recordings; a run's past on disk."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import zstandard

from ..wire.errors import LocalProblem, UsageError
from ..wire.status import MergeRow
from .graph import PeerGraph

MAX_PICTURES = 600
MAX_ROWS = 120_000  # peers and exchanges in all pictures together: about 30 MB
MAX_ROUNDS = 1000  # of a job, kept on disk
SAVED_PICTURES = 400
SAVED_ROWS = 20_000  # some hundred kilobytes on disk
SAVED_WHOLE = 60  # pictures with exchanges; the others have only the peers

T = TypeVar("T")


class PictureHistory:
    """Pictures in the order of their times, bounded in number and in rows.

    When it is full, every other picture of the older half goes: a long run keeps its whole length in less detail.
    """

    def __init__(self, max_pictures: int = MAX_PICTURES, max_rows: int = MAX_ROWS) -> None:
        if max_pictures < 4:
            raise ValueError(f"a history of {max_pictures} pictures")
        self._max_pictures, self._max_rows = max_pictures, max_rows
        self._kept: list[PeerGraph] = []
        self._rows = 0

    def add(self, graph: PeerGraph) -> None:
        """Append a picture. One that is not later than the last is ignored: clocks are sometimes set back."""
        if self._kept and graph.time <= self._kept[-1].time:
            return
        self._kept.append(msgspec.structs.replace(graph, events=(), invite="", page=""))
        self._rows += _rows(graph)
        while len(self._kept) > 4 and (len(self._kept) > self._max_pictures or self._rows > self._max_rows):
            self._kept = _halved(self._kept)
            self._rows = sum(map(_rows, self._kept))

    def put_before(self, earlier: Iterable[PeerGraph]) -> None:
        """Add pictures of the time before the first one."""
        later, self._kept, self._rows = self._kept, [], 0
        first = later[0].time if later else float("inf")
        for graph in (*(graph for graph in earlier if graph.time < first), *later):
            self.add(graph)

    def all(self) -> tuple[PeerGraph, ...]:
        """All pictures, oldest first."""
        return tuple(self._kept)


def _halved(items: list[T]) -> list[T]:
    """Returns the items without every other one of the older half."""
    half = len(items) // 2
    return items[:half:2] + items[half:]


def _rows(graph: PeerGraph) -> int:
    return len(graph.peers) + len(graph.exchanges)


LEVEL = 19
WINDOW = 1 << 27  # bytes that decompressing may need

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PeerGraph)


def _packed(path: str | Path) -> bool:
    return Path(path).suffix == ".zst"


def _lines(path: str | Path, file: BinaryIO) -> Iterable[bytes]:
    """The lines of a file, decompressed piece by piece: a small file can unpack to more than the memory holds."""
    if not _packed(path):
        return file
    reader: Any = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(file)
    return io.BufferedReader(reader)


def thinned(graphs: Sequence[PeerGraph], moments: int, whole: int) -> list[PeerGraph]:
    """Returns at most `moments` pictures, evenly chosen; `whole` of them stay complete, the others keep only peers."""
    kept = [graphs[place] for place in _evenly(len(graphs), moments)]
    entire = set(_evenly(len(kept), whole))
    bare = [msgspec.structs.replace(graph, exchanges=(), fingerprints={}, shards=()) for graph in kept]
    return [kept[place] if place in entire else bare[place] for place in range(len(kept))]


def _evenly(count: int, limit: int) -> list[int]:
    """Returns at most `limit` indices of `count` items, evenly spread from the first to the last."""
    if count <= limit:
        return list(range(count))
    return [round(place * (count - 1) / max(1, limit - 1)) for place in range(limit)]


def view_line(graph: PeerGraph) -> bytes:
    """A picture as a line of a recording."""
    return _encoder.encode(graph) + b"\n"


def read_views(path: str | Path) -> list[PeerGraph]:
    """The pictures of a recording, oldest first. LocalProblem when it cannot be read, UsageError when it has none."""
    try:
        with Path(path).open("rb") as file:
            found = [_decoder.decode(line) for line in _lines(path, file) if line.startswith(b'{"is":"view"')]
    except OSError as error:
        raise LocalProblem(f"cannot read the recording {path}: {error.strerror}") from None
    except (msgspec.DecodeError, zstandard.ZstdError) as error:
        raise UsageError(f"{path} is not a recording of p2pnode: {error}") from None
    if not found:
        raise UsageError(f"{path} has no pictures of a swarm; record one with: python -m p2pnode sim … --record FILE")
    return sorted(found, key=lambda graph: graph.time)


def write_views(path: str | Path, graphs: Iterable[PeerGraph]) -> None:
    """Write a recording that `read_views` reads. LocalProblem when it cannot be written."""
    lines = b"".join(view_line(graph) for graph in graphs)
    try:
        Path(path).write_bytes(zstandard.compress(lines, LEVEL) if _packed(path) else lines)
    except OSError as error:
        raise LocalProblem(f"cannot write the recording {path}: {error.strerror}") from None


# ---- what a node keeps of its run ----


class KeptHistory(msgspec.Struct, frozen=True):
    """The past of a run at one node: pictures of the swarm, and the rounds of each job; oldest first."""

    pictures: tuple[PeerGraph, ...] = ()
    rounds: dict[str, tuple[MergeRow, ...]] = {}


_kept_decoder = msgspec.msgpack.Decoder(KeptHistory)


def history_file(run: str) -> str:
    """Where a node keeps the history of a run, within its storage."""
    return f"runs/{run}/history"


def pack_history(pictures: Sequence[PeerGraph], rounds: Mapping[str, Sequence[MergeRow]]) -> bytes:
    """The history for the disk. It is bounded, and its length does not matter: what is old is kept in less detail."""
    most = max((len(graph.peers) for graph in pictures), default=1)
    moments = max(4, min(SAVED_PICTURES, SAVED_ROWS // max(1, most)))
    kept = thinned(pictures, moments, min(SAVED_WHOLE, moments))
    whole = KeptHistory(tuple(kept), {job: tuple(rows) for job, rows in rounds.items()})
    return zstandard.compress(msgspec.msgpack.encode(whole))


def unpack_history(data: bytes) -> KeptHistory:
    """What `pack_history` packed; ValueError when it is damaged or of another version."""
    try:
        reader: Any = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(data)
        return _kept_decoder.decode(reader.read())
    except (msgspec.DecodeError, zstandard.ZstdError) as error:
        raise ValueError(str(error)) from None


def joined_rounds(before: Sequence[MergeRow], now: Sequence[MergeRow]) -> list[MergeRow]:
    """The rounds of earlier starts and those of this one; ever fewer of the older ones."""
    rows = [*(row for row in before if not now or row.round < now[0].round), *now]
    while len(rows) > MAX_ROUNDS:
        rows = _halved(rows)
    return rows
