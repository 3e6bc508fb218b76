"""A simulation on disk: one JSON object a line, written as it happens, so that an interrupted one can be read too.

{"is": "plan", …}      what was simulated
{"is": "round", …}     a node after a round (result.RoundRow)
{"is": "view", …}      the peer graph at a moment (watch.graph.PeerGraph)
{"is": "node", …}      a node at the end (result.NodeSummary)
{"is": "end", …}       digest, virtual and real time
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..watch.graph import PeerGraph
from ..watch.history import view_line
from ..wire.errors import LocalProblem
from .result import NodeSummary, RoundRow


class Recording:
    """Writes to a file, or nowhere when there is none. LocalProblem when it cannot."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        try:
            self._file = None if path is None else Path(path).open("wb")  # noqa: SIM115
        except OSError as error:
            raise LocalProblem(f"cannot write the recording {path}: {error.strerror}") from None

    def plan(self, facts: Mapping[str, object]) -> None:
        self._write("plan", facts)

    def round(self, row: RoundRow) -> None:
        self._write("round", row._asdict())

    def view(self, graph: PeerGraph) -> None:
        self._put(view_line(graph))

    def end(self, summaries: tuple[NodeSummary, ...], facts: Mapping[str, object]) -> None:
        for summary in summaries:
            self._write("node", msgspec.structs.asdict(summary))
        self._write("end", facts)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, kind: str, content: Mapping[str, object]) -> None:
        self._put(msgspec.json.encode({"is": kind, **content}) + b"\n")

    def _put(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise LocalProblem(f"cannot write the recording {self._path}: {error.strerror}") from None


NOWHERE = Recording(None)
