"""Asks the user at the terminal whether a file that a run brings along may run here.

The node waits for the answer; the view that owns the screen puts the question (`put`), because it has to stop drawing.
"""

from __future__ import annotations

import asyncio
import os
from typing import IO, TextIO

from ..config.options import LogFormat
from ..jobs.offers import FileOffer
from .text import clean, size

MAX_ANSWER = 1000


class Questions:
    """The questions of one node, one at a time. `pending` is the offer that waits for an answer."""

    def __init__(self, source: TextIO, shown: TextIO, log_format: LogFormat = "auto") -> None:
        self.pending: FileOffer | None = None
        self._source = source
        self._can_ask = log_format != "json" and _foreground(source) and shown.isatty()
        self._answer: asyncio.Future[bool] | None = None

    async def consent(self, offer: FileOffer) -> bool | None:
        """Whether the user lets the file run; None where nobody sits at a terminal (jobs.offers.Consent)."""
        if not self._can_ask:
            return None
        self._answer, self.pending = asyncio.get_running_loop().create_future(), offer
        try:
            return await self._answer
        finally:
            self.pending = None

    async def put(self, stream: IO[str]) -> None:
        """Write the pending question and wait for the user's answer: y or yes; anything else is no."""
        offer, answer = self.pending, self._answer
        if offer is None or answer is None:
            return
        stream.write(question(offer))
        stream.flush()
        line = await _read_line(self._source)
        self.pending = None
        if not answer.done():
            answer.set_result(line.strip().lower() in ("y", "yes"))


def question(offer: FileOffer) -> str:
    """The question in words. Peers wrote the names in it."""
    return (
        f"\nThe run {clean(offer.run)!r} learns {clean(offer.task)!r} by a file of its founder:\n"
        f"  file    {clean(offer.file)}, {size(offer.size)}\n"
        f"  sha256  {offer.sha256}\n"
        f"  copy    {offer.copy}\n"
        "It is a program that can do on this machine whatever you can do. Read the copy first.\n"
        "Run it? [y/N] "
    )


def _foreground(source: TextIO) -> bool:
    """Whether the user can type into it: a terminal, and not a job in the background, which reading would stop."""
    try:
        return source.isatty() and os.tcgetpgrp(source.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


async def _read_line(source: TextIO) -> str:
    """The next line that the user types; "" at the end of the input. It holds up nothing else."""
    loop, ready, line = asyncio.get_running_loop(), asyncio.Event(), b""
    loop.add_reader(source.fileno(), ready.set)
    try:
        while not line.endswith(b"\n") and len(line) < MAX_ANSWER:
            await ready.wait()
            ready.clear()
            piece = os.read(source.fileno(), MAX_ANSWER)
            if not piece:
                break
            line += piece
    finally:
        loop.remove_reader(source.fileno())
    return line.decode(errors="replace")
