"""Chooses how a node is shown: live in a terminal, as lines elsewhere. Log records go to the same place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from ..config.options import OutputOptions
from ..storage.files import Storage
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.status import NodeEvent, NodeStatus
from .questions import Questions
from .terminal.lines import line_writer
from .text import invitation, one_line

if TYPE_CHECKING:
    from ..node.node import Node

POLL = 0.25
KEY_IN_INVITE = "this run is private, and its invite holds the key: `python -m p2pnode status` shows it"


class Watched(Protocol):
    """What a view needs of a node."""

    def status(self) -> NodeStatus: ...
    def on_event(self, listener: Callable[[NodeEvent], None]) -> None: ...
    def leave(self) -> None: ...
    async def look_around(self) -> None: ...
    async def execute(self, request: ControlRequest) -> ControlAnswer: ...


def view_kind(output: OutputOptions, stream: TextIO) -> Literal["live", "plain", "json"]:
    """The live view only where it can be drawn and is wanted; else lines, as JSON where asked for."""
    if output.log_format == "json":
        return "json"
    drawable = stream.isatty() and os.environ.get("TERM") != "dumb"
    return "live" if drawable and not output.quiet and output.log_format in ("auto", "rich") else "plain"


@contextlib.asynccontextmanager
async def shown(
    node: Watched, output: OutputOptions, stream: TextIO, questions: Questions | None = None
) -> AsyncIterator[None]:
    """Show the node, and put its questions to the user, while the block runs."""
    kind = view_kind(output, stream)
    if kind == "live":
        drawing = asyncio.create_task(_live(node, stream, questions))
    else:
        write = line_writer(stream, kind, output.quiet)
        node.on_event(write)
        _log_to(write)
        drawing = asyncio.create_task(_write_links(node, write, stream, kind, questions))
    try:
        yield
    finally:
        drawing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drawing


@contextlib.asynccontextmanager
async def page_shown(node: Node, place: tuple[str, int] | None, storage: Storage) -> AsyncIterator[None]:
    """Serve the node's page at a host and port while the block runs, if the user wants one; keep the run's history."""
    if place is None:
        async with _history_kept(node, storage):
            yield
        return
    from .dashboard.server import served

    async with served(node, *place, storage) as page:
        node.has_page(page.link, page.network)
        if page.network:
            node.say("page open", f"everybody in this network can read the page at {page.network}", warning=True)
        yield


@contextlib.asynccontextmanager
async def _history_kept(node: Watched, storage: Storage) -> AsyncIterator[None]:
    """Keep what a page shows of the run's past, for the next start with one."""
    from .dashboard.feed import Feed

    feed = Feed(node, storage, seen=False)
    looking = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await feed.save()


async def _live(node: Watched, stream: TextIO, questions: Questions | None) -> None:
    from rich.console import Console

    from .terminal.live import TerminalView, farewell

    console = Console(file=stream)
    view = TerminalView(node.status, console, questions)
    _log_to(view.log)
    try:
        await view.run()
    finally:
        status = node.status()
        if status.condition != "starting":  # else it never was there, and an error line says why
            console.print(farewell(status), markup=False, highlight=False)


async def _write_links(
    node: Watched,
    write: Callable[[NodeEvent], None],
    stream: TextIO,
    form: Literal["plain", "json"],
    questions: Questions | None,
) -> None:
    """Write the invite (or the address of a meeting point) and the link of the page, whenever they change.

    That of a private run holds its key: it goes to people at a terminal, and into no log.
    """
    written: set[str] = set()
    logged = form == "json" or not stream.isatty()
    while True:
        status = node.status()
        for kind, text in (invitation(status), ("page", status.page)):
            if text and kind == "invite" and status.private and logged:
                kind, text = "private", KEY_IN_INVITE
            if text and text not in written:
                written.add(text)
                write(NodeEvent(time.time(), kind, text))
        if questions is not None and questions.pending is not None:
            await questions.put(stream)
        await asyncio.sleep(POLL)


class _Handler(logging.Handler):
    """Log records as warnings in the view."""

    def __init__(self, write: Callable[[NodeEvent], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = one_line(f"{record.name}: {record.getMessage()}")
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({type(record.exc_info[1]).__name__}: {one_line(str(record.exc_info[1]))})"
            self._write(NodeEvent(record.created, "log", text, warning=True))
        except Exception:  # logging asks for this: whoever logs must not fail because of it
            self.handleError(record)


def _log_to(write: Callable[[NodeEvent], None]) -> None:
    """Send log records to the view instead of stderr, and drop the Python warnings of libraries."""
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(_Handler(write))
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
