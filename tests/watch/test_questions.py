"""Questions at the terminal: what they show, what counts as yes, and that nobody is asked where nobody sits."""

from __future__ import annotations

import asyncio
import io
import os
import pty
from typing import Any

import pytest
from rich.console import Console

from p2pnode.jobs.offers import FileOffer
from p2pnode.watch import questions as module
from p2pnode.watch.questions import Questions, question
from p2pnode.watch.terminal.live import TerminalView
from tests.live.terminal_screen import TerminalScreen
from tests.watch.test_terminal import status, text_of

OFFER = FileOffer("run of ann", "mine", "mine.py", 1234, "ab" * 32, "/data/mine.py")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


async def asked(typed: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[bool | None, str]:
    """The answer and what was shown, for a user who types this."""
    monkeypatch.setattr(module, "_foreground", lambda source: True)
    keyboard, terminal = pty.openpty()
    screen = Screen()
    with os.fdopen(terminal) as source:
        questions = Questions(source, screen)
        answer = asyncio.create_task(questions.consent(OFFER))
        await asyncio.sleep(0)
        assert questions.pending == OFFER
        putting = asyncio.create_task(questions.put(screen))
        await asyncio.sleep(0)
        assert not answer.done()
        os.write(keyboard, typed)
        async with asyncio.timeout(60):
            await putting
            found = await answer
        assert questions.pending is None
    os.close(keyboard)
    return found, screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "means"), [(b"y\n", True), (b" YES \n", True), (b"n\n", False), (b"\n", False), (b"yo\n", False)]
)
def test_only_yes_is_yes(typed: bytes, means: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found, shown = asyncio.run(asked(typed, monkeypatch))
    assert found is means
    for words in ("mine.py, 1.2 kB", OFFER.sha256, OFFER.copy, "[y/N]"):
        assert words in shown


def test_the_end_of_the_input_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(asked(b"\x04", monkeypatch))[0] is False


def test_nobody_is_asked_where_nobody_sits() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as source:
        assert asyncio.run(Questions(source, Screen()).consent(OFFER)) is None
    os.close(writing)


def test_json_lines_are_for_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_foreground", lambda source: True)
    assert asyncio.run(Questions(Screen(), Screen(), "json").consent(OFFER)) is None


def test_what_peers_wrote_cannot_steer_the_terminal() -> None:
    text = question(FileOffer("\x1b[2J", "\x9b31m", "a.py", 1, "0" * 64, "/data/a.py"))
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_live_view_makes_room_for_the_question() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, no_color=True)

    class Pending:
        pending: Any = OFFER

        async def put(self, stream: io.StringIO) -> None:
            stream.write("Run it?")
            await asyncio.sleep(0.6)  # longer than a picture takes: it must not be drawn over
            stream.write(" answered")
            self.pending = None

    questions: Any = Pending()
    view = TerminalView(lambda: status(), console, questions)

    async def look() -> None:
        showing = asyncio.create_task(view.run())
        async with asyncio.timeout(60):
            while "answered" not in text_of(console):  # noqa: ASYNC110 (a console sends no event)
                await asyncio.sleep(0.01)
            pictures = text_of(console).count("connected")
            while text_of(console).count("connected") == pictures:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)

    asyncio.run(look())
    assert "Run it? answered" in text_of(console)
    screen = TerminalScreen(80, 24)
    screen.feed(text_of(console).replace("\n", "\r\n"))
    assert any(line.startswith("Run it? answered") for line in screen.lines()), "the next picture did not wipe it out"
