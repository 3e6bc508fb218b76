"""Runs a node in a thread with an event loop of its own, next to the training loop of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from ..config.options import Options
from ..node.place import elsewhere, first_of_ours, sweep
from ..storage.datadir import DataDir
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import LocalProblem
from ..wire.status import NodeEvent, NodeStatus

if TYPE_CHECKING:
    from ..node.node import Node

ANSWER_LIMIT = 60.0  # seconds for a command
POLL = 0.25
LOOK_AGAIN = 2.0  # seconds after which an invite is made again: addresses may have changed
BY_LOOP = 'by p2pnode.join(model, optimizer, "CODE"), or with P2PNODE_INVITE=CODE set'

T = TypeVar("T")


class NodeThread:
    """One node in a thread. `problem` is what ended it, if that was no farewell; `ended` is set when it is gone."""

    def __init__(
        self,
        options: Options,
        data_dir: DataDir,
        wanted: Path,
        stream: TextIO,
        joining: str = BY_LOOP,
        on_end: Callable[[BaseException | None], None] = lambda problem: None,
    ) -> None:
        """`joining`: how others take part, in words in which CODE is the invite's code.

        `on_end` is called in the thread with the problem that ended the node, or None after a farewell.
        """
        self.problem: BaseException | None = None
        self.ended = threading.Event()
        self.invite = ""
        self._options = options
        self._data_dir = data_dir
        self._wanted = wanted
        self._stream = stream
        self._joining = joining
        self._on_end = on_end
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()  # the node exists, or never will
        self._wants_to_leave = False
        self._thread = threading.Thread(target=self._run, name="p2pnode", daemon=True)
        self._thread.start()

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            from ..node.event_loop import run_loop  # imports take seconds, and the caller does not wait

            run_loop(self._live())
        except BaseExceptionGroup as group:
            self.problem = first_of_ours(group)
        except BaseException as error:  # whatever it is, the training loop has to hear of it
            self.problem = error
        finally:
            self._node = self._loop = None
            self._data_dir.close()
            self._on_end(self.problem)
            self.ended.set()
            self._up.set()

    async def _live(self) -> None:
        from ..network.libp2p.hivemind import HivemindNetwork
        from ..node.node import Node
        from ..node.process import daemon_options, surroundings
        from ..runtime.seams import real_world
        from ..watch.show import page_shown
        from ..watch.tensorboard import logged

        options, data_dir = self._options, self._data_dir
        identity, seams = data_dir.identity(), real_world(data_dir.storage)
        node = Node(options, seams, HivemindNetwork(identity, daemon_options(options, data_dir)), identity)
        self._loop, self._node = asyncio.get_running_loop(), node
        self._up.set()
        if self._wants_to_leave:
            node.leave()
        printing = asyncio.create_task(self._print(node))
        try:
            async with (
                surroundings(node, options, data_dir),
                page_shown(node, options.output.dashboard, data_dir.storage),
                logged(node, options.output.tensorboard),
            ):
                if data_dir.path != self._wanted:
                    node.say("data directory", elsewhere(data_dir.path, self._wanted))
                await node.run()
        finally:
            printing.cancel()
            seams.close()

    async def _print(self, node: Node) -> None:
        """Print what the user should know: warnings and a few events as lines, the invite and the page's link once."""
        from ..watch.terminal.lines import line_writer
        from ..watch.text import clean

        output, code, page = self._options.output, "", ""
        if output.log_format == "json":
            node.on_event(line_writer(self._stream, "json", output.quiet))
        else:
            node.on_event(lambda event: self._say(event, clean))
        while True:
            self.invite = (node.invite().split() or [""])[-1]
            if self.invite and not code:
                code = self.invite
                self._write(f"p2pnode: others take part {self._joining}, where CODE is\n{code}")
            if node.page and not page:
                page = node.page
                self._write(f"p2pnode: the page is at {page}")
            await asyncio.sleep(LOOK_AGAIN if code else POLL)

    def _say(self, event: NodeEvent, clean: Callable[[str, int], str]) -> None:
        shown = {"founded", "joined", "resumed", "caught up", "resumed learning", "data directory", "done", "progress"}
        if event.warning or event.kind in shown:
            self._write(f"p2pnode: {clean(event.text, 600)}", warning=event.warning)

    def _write(self, text: str, warning: bool = False) -> None:
        if self._options.output.quiet and not warning:
            return
        with contextlib.suppress(OSError, ValueError):  # the stream may be closed
            self._stream.write(f"{text}\n")
            self._stream.flush()

    # ---- from other threads ----

    def status(self) -> NodeStatus | None:
        """How the node is; None while it starts, and when it is gone."""
        node = self._node
        return None if node is None or self._loop is None else self._call(_value(node.status))

    def execute(self, request: ControlRequest) -> ControlAnswer:
        """Carry out a command, as from another terminal; LocalProblem or UsageError when that fails."""
        self._up.wait(ANSWER_LIMIT)
        node = self._node
        if node is None:
            raise LocalProblem("the node is not running; join again")
        return self._call(node.execute(request))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            work.close()
            raise LocalProblem("the node is not running; join again")
        try:
            future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop was closed since
            work.close()
            raise LocalProblem("the node is not running; join again") from None
        until = time.monotonic() + ANSWER_LIMIT
        while True:
            try:
                return future.result(POLL)
            except TimeoutError:
                if future.done():
                    raise
                if self.ended.is_set() or time.monotonic() > until:
                    future.cancel()
                    raise LocalProblem("the node ended, or did not answer in time") from None

    def leave(self) -> None:
        """Ask the node to leave; returns at once."""
        self._wants_to_leave = True
        loop, node = self._loop, self._node
        if loop is not None and node is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(node.leave)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
        self.ended.wait(seconds)
        if self.ended.is_set():
            self._thread.join(1.0)
        return self.ended.is_set()

    def sweep(self) -> None:
        """A node that does not end in time must leave nothing behind: its daemon and sockets go."""
        sweep(self._data_dir.path)


async def _value(function: Callable[[], T]) -> T:
    return function()
