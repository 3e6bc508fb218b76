"""A swarm as one's own node has it: the running node is asked; else its store tells whom it met."""

from __future__ import annotations

import time
from pathlib import Path

from ..discovery.book import PeerBook
from ..discovery.registry import BOOK_FILE
from ..node.control import ControlRequest, NotRunning, ask
from ..node.saved_run import last_run
from ..storage.datadir import IDENTITY_FILE
from ..storage.files import DiskStorage
from ..wire.errors import LocalProblem
from .graph import PeerGraph, PeerView
from .history import PictureHistory
from .similarity import whole_picture
from .view import SwarmView

EVERY = 1.0  # seconds until the node is asked again


class OwnView(SwarmView):
    """Asks whenever it is looked at, at most once a second. The node may be stopped and started meanwhile."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(self._newest)
        self._data_dir = data_dir
        self._history = PictureHistory()
        self._asked = 0.0

    @property
    def state(self) -> str:
        return self.picture().why

    def _newest(self) -> tuple[PeerGraph, ...]:
        now = time.time()
        if not 0 <= now - self._asked < EVERY:
            self._asked = now
            self._history.add(self._picture(now))
        return self._history.all()

    def _picture(self, now: float) -> PeerGraph:
        try:
            status = ask(self._data_dir, ControlRequest("status")).status
            known = ask(self._data_dir, ControlRequest("fingerprints"))
        except NotRunning:
            return stored_picture(self._data_dir, now)
        if status is None:
            raise LocalProblem(f"the node on {self._data_dir} does not tell its status; is it another version?")
        return whole_picture(status, now, known.manifest, known.fingerprints)


def stored_picture(data_dir: Path, now: float) -> PeerGraph:
    """Whom the node met in its run, by its store alone; LocalProblem when no node has run there."""
    storage = DiskStorage(data_dir)
    if storage.read(IDENTITY_FILE) is None:
        raise LocalProblem(f"no node has run on {data_dir}; start one with `python -m p2pnode --data-dir {data_dir}`")
    peers = tuple(
        PeerView(entry.peer, "", "", present=False, heard_seconds_ago=max(0.0, now - entry.met))
        for entry in PeerBook(storage, BOOK_FILE).entries()
    )
    access, manifest = last_run(storage)
    run = "" if access is None else access.run
    return PeerGraph(now, "", run, "stopped", "no node is running; these were met before", peers, manifest=manifest)
