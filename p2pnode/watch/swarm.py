"""Look at a running swarm from a notebook or a script, without taking part in the learning; or at a recorded one.

    view = await p2pnode.Swarm.look("ADDR")          # in a notebook; view.close() when done
    with p2pnode.Swarm.look("ADDR") as view: ...     # in a script
    view = p2pnode.Swarm.replay("FILE")

A look is an observer: a node with a daemon and an identity of its own, kept in a thread for as long as it looks.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType

from ..addresses import Address, parse_address
from ..errors import LocalProblem, P2pnodeError
from ..names import friendly_name
from ..node.node import Node, NodeSettings
from ..node.world import real_world
from ..run import RunAccess
from ..store.datadir import DataDir, open_data_dir
from .graph import graph_of
from .history import History
from .recorded import read_views, write_views
from .view import SwarmView

EVERY = 1.0  # seconds between two pictures
FIRST = 30.0  # seconds until the swarm must have been found


class Swarm:
    """The doors to a swarm's views."""

    @staticmethod
    def look(address: str, run: str | None = None, timeout: float = FIRST) -> Look:
        """Begin to look at the swarm behind `address`; await it, or use it as a context.

        `run` is needed for a private run or where several meet, as the invite gives it (RUN or RUN.KEY).
        UsageError for a wrong address; LocalProblem when nobody answers within `timeout` seconds.
        """
        return Look(parse_address(address), None if run is None else RunAccess.parse(run), timeout)

    @staticmethod
    def replay(path: str | Path) -> SwarmView:
        """A recorded look or simulation."""
        pictures = read_views(path)
        return SwarmView(lambda: pictures)


class Look(SwarmView):
    """A live view. Keeps looking until closed."""

    def __init__(self, address: Address, access: RunAccess | None, timeout: float) -> None:
        super().__init__(lambda: self._history.all())
        self._address, self._access, self._timeout = address, access, timeout
        self._history = History()
        self._first = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="p2pnode look", daemon=True)

    # ---- opening and closing ----

    def open(self) -> Look:
        """Begin; returns when the swarm has been seen."""
        self._thread.start()
        seen = self._first.wait(self._timeout)
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        if not seen:
            self.close()
            raise LocalProblem(f"nobody answered at {self._address.text} within {self._timeout:g} s")
        return self

    def close(self) -> None:
        """Stop looking; what has been seen stays."""
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

    def record(self, path: str | Path) -> None:
        """Write what has been seen; `Swarm.replay` reads it."""
        write_views(path, self.pictures)

    # ---- in the thread ----

    def _run(self) -> None:
        import uvloop

        with tempfile.TemporaryDirectory(prefix="p2pnode-look-") as place:
            data_dir = open_data_dir(Path(place))
            try:
                uvloop.run(self._look(data_dir))
            except P2pnodeError as problem:
                self._problem = problem
            finally:
                data_dir.close()
                self._first.set()

    async def _look(self, data_dir: DataDir) -> None:
        from ..network.hivemind import HivemindNetwork, NetworkOptions

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        identity = data_dir.identity()
        network = HivemindNetwork(identity, NetworkOptions(data_dir=data_dir.path, key_file=data_dir.key_file))
        name = friendly_name(identity.peer_id)
        settings = NodeSettings(
            name=name, role="observer", bootstrap=(self._address,), access=self._access, meet_only=True
        )
        node = Node(settings, real_world(data_dir.storage), network, identity)
        living = asyncio.create_task(node.run())
        looking = asyncio.create_task(self._keep_looking(node))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({living, looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        stopping.cancel()
        node.leave()
        await living

    async def _keep_looking(self, node: Node) -> None:
        while True:
            await node.look_around()
            status = node.status()
            if status.condition == "connected":
                self._history.add(graph_of(status, time.time()))
                self._first.set()
            await asyncio.sleep(EVERY)
