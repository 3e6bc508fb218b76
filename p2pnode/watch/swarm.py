"""Look at a running swarm from a notebook or a script without taking part in the training, or at a recorded one.

    view = await p2pnode.Swarm.look("CODE")          # in a notebook; view.close() when done
    with p2pnode.Swarm.look("CODE") as view: ...     # in a script
    view = p2pnode.Swarm.own("DATA_DIR")             # as your own node knows it, running or not
    view = p2pnode.Swarm.replay("FILE")

`look` starts an observer: a node with its own daemon and identity that runs in a thread until it is closed. Once it
has seen the swarm it goes on whatever happens; `state` and the pictures say what is wrong.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from types import TracebackType

from ..config.options import Options, RunOptions
from ..discovery.book import stored_entries
from ..discovery.registry import BOOK_FILE
from ..node.control import NotRunning, ask
from ..node.joining import last_run
from ..node.node import Node
from ..runtime.seams import real_world
from ..storage.datadir import IDENTITY_FILE, DataDir, open_data_dir
from ..storage.files import DiskStorage
from ..wire.addresses import Address
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem
from ..wire.invite import read_place
from ..wire.run import RunAccess
from ..wire.status import PeerState
from .graph import PeerGraph
from .history import PictureHistory, read_views
from .similarity import whole_picture
from .view import SwarmView

POLL_EVERY = 1.0  # seconds until the node is asked again


class OwnView(SwarmView):
    """Asks the node whenever it is read, at most once a second. The node may be stopped and started meanwhile."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(self._latest, lambda: self.picture().reason)
        self._data_dir = data_dir
        self._history = PictureHistory()
        self._asked = 0.0

    @property
    def invite(self) -> str:
        """The command that lets a friend join, as the running node prints it; "" where no node runs."""
        try:
            status = ask(self._data_dir, ControlRequest("status")).status
        except NotRunning:
            return ""
        return "" if status is None else status.invite

    def _latest(self) -> tuple[PeerGraph, ...]:
        now = time.time()
        if not 0 <= now - self._asked < POLL_EVERY:
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
            raise LocalProblem(f"the node on {self._data_dir} sent no status; is it another version?")
        return whole_picture(status, now, known.manifest, known.fingerprints)


def stored_picture(data_dir: Path, now: float) -> PeerGraph:
    """The peers that the node met in its run, from its data directory. LocalProblem when no node has run there."""
    storage = DiskStorage(data_dir)
    if storage.read(IDENTITY_FILE) is None:
        raise LocalProblem(f"no node has run on {data_dir}; start one with `python -m p2pnode --data-dir {data_dir}`")
    peers = tuple(
        PeerState(entry.peer, "", "", present=False, heard_seconds_ago=max(0.0, now - entry.met))
        for entry in stored_entries(storage, BOOK_FILE)
    )
    saved = last_run(storage)
    run, manifest = ("", None) if saved is None else (saved.access.run, saved.manifest)
    return PeerGraph(now, "", run, "stopped", "no node is running; these were met before", peers, manifest=manifest)


EVERY = 1.0  # seconds between two pictures
FIRST = 30.0  # seconds in which the swarm must be found


class Swarm:
    """The ways to get a view of a swarm."""

    @staticmethod
    def look(place: str, run: str | None = None, timeout: float = FIRST, ask: bool = True) -> Look:
        """Start an observer of the swarm at `place`; await the result, or use it as a context manager.

        `place` is an invite (its code, or the whole command) or the address of any node. An address needs the `run`
        (RUN or RUN.KEY) too where the run is private or several share a meeting point. With `ask=False` no peer is
        asked how it gets on, and only what nodes announce is seen. UsageError for a wrong place; LocalProblem with the
        reason when the swarm is not seen within `timeout` seconds.
        """
        addresses, access = read_place(place)
        return Look(addresses, access if run is None else RunAccess.parse(run), timeout, ask)

    @staticmethod
    def own(data_dir: str | Path) -> OwnView:
        """The swarm as the node on a data directory knows it: asked from the node, or read from its files."""
        return OwnView(Path(data_dir))

    @staticmethod
    def replay(path: str | Path) -> SwarmView:
        """A recorded look or simulation."""
        pictures = read_views(path)
        return SwarmView(lambda: pictures)


class Look(SwarmView):
    """A live view. It keeps looking until it is closed."""

    def __init__(self, addresses: tuple[Address, ...], access: RunAccess | None, timeout: float, ask: bool) -> None:
        super().__init__(lambda: self._history.all(), self._described)
        self._addresses, self._access, self._timeout, self._ask = addresses, access, timeout, ask
        self._history = PictureHistory()
        self._first = threading.Event()
        self._closed = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._problem: Exception | None = None
        self._reason = "starting"
        self._thread = threading.Thread(target=self._run, name="p2pnode look", daemon=True)

    def _described(self) -> str:
        """Connected, closed, or what is wrong and that the observer tries again."""
        if self._problem is not None:
            return f"ended: {self._problem}"
        return "closed; what was seen stays" if self._closed.is_set() else self._reason

    # ---- opening and closing ----

    def open(self) -> Look:
        """Start the observer; returns when the swarm has been seen."""
        if self._thread.ident is None:
            self._thread.start()
        try:
            seen = self._first.wait(self._timeout)
        except BaseException:
            self.close()
            raise
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        if not seen:
            reason = self.state
            self.close()
            raise LocalProblem(
                f"nothing was seen of the swarm at {self._addresses[0]} within {self._timeout:g} s: {reason}"
            )
        return self

    def close(self) -> None:
        """Stop the observer; what has been seen stays."""
        self._closed.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
            self._thread.join(10.0)

    def __await__(self) -> Generator[object, None, Look]:
        return asyncio.to_thread(self.open).__await__()

    def __enter__(self) -> Look:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- in the thread ----

    def _run(self) -> None:
        import uvloop

        with tempfile.TemporaryDirectory(prefix="p2pnode-look-") as place:
            data_dir = open_data_dir(Path(place))
            try:
                uvloop.run(self._look(data_dir))
            except Exception as problem:  # raised again in the thread that waits
                self._problem = problem
            finally:
                data_dir.close()
                self._first.set()

    async def _look(self, data_dir: DataDir) -> None:
        from ..network.libp2p.hivemind import HivemindNetwork, HivemindOptions

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._closed.is_set():
            return
        identity = data_dir.identity()
        network = HivemindNetwork(identity, HivemindOptions(data_dir=data_dir.path, key_file=data_dir.key_file))
        run = RunOptions(bootstrap=self._addresses, access=self._access)
        options = Options(role="observer", run=run)
        with closing(real_world(data_dir.storage)) as seams:
            await self._observe(Node(options, seams, network, identity), self._stop)

    async def _observe(self, node: Node, stop: asyncio.Event) -> None:
        """Run the observer until it is closed or its node ends."""
        living = asyncio.create_task(node.run())
        looking = asyncio.create_task(keep_looking(node, self._note, self._ask, time.time))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({living, looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        stopping.cancel()
        node.leave()
        await living

    def _note(self, picture: PeerGraph) -> None:
        """Keep a picture. Nothing counts as seen before a peer has answered; from then on everything does."""
        self._reason = picture.reason
        if picture.condition == "connected" or self._first.is_set():
            self._history.add(picture)
            self._first.set()
            for listener in self._listeners:
                listener()


async def keep_looking(node: Node, note: Callable[[PeerGraph], None], ask: bool, now: Callable[[], float]) -> None:
    """Pass a picture of what an observer knows to `note`, every second until cancelled."""
    while True:
        if ask:
            await node.look_around()
        note(whole_picture(node.status(), now(), node.manifest, node.fingerprints()))
        await asyncio.sleep(EVERY)
