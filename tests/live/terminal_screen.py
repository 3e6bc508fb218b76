"""A small terminal: shows what a program has drawn on a screen of a given size, and what a user could copy from it."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r|\n|[^\x1b\r\n]+|\x1b")


class TerminalScreen:
    """The lines on the screen. `feed` takes output in pieces; a sequence must not be cut in two."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows: list[str] = [""]
        self._wrapped: list[bool] = [False]  # whether a row goes on with the row before
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            if token.group(2):
                self._control(token.group(1), token.group(2))
            elif token.group() == "\r":
                self._column = 0
            elif token.group() == "\n":
                self._line_feed(wrapped=False)
            elif not token.group().startswith("\x1b"):
                for char in token.group():
                    self._put(char)

    def lines(self) -> list[str]:
        """The text on the screen as it is copied: a row that the terminal wrapped is one line with the next."""
        lines: list[str] = []
        for row, wrapped in zip(self._rows, self._wrapped, strict=True):
            if wrapped and lines:
                lines[-1] += row
            else:
                lines.append(row)
        return [line.rstrip() for line in lines]

    def _control(self, numbers: str, letter: str) -> None:
        count = int(numbers) if numbers.isdigit() else 0
        if letter == "A":
            self._row = max(0, self._row - max(1, count))
        elif letter == "K" and count == 2:
            self._rows[self._row] = ""
        elif letter == "J" and count == 2:
            self._rows, self._wrapped = [""] * self._height, [False] * self._height
        elif letter == "H":
            assert numbers in ("", "1;1"), "only the upper left corner is known here"
            self._row = self._column = 0
        elif letter == "K":
            self._rows[self._row] = self._rows[self._row][: self._column]

    def _put(self, char: str) -> None:
        if self._column == self._width:
            self._line_feed(wrapped=True)
            self._column = 0
        row = self._rows[self._row].ljust(self._column)
        self._rows[self._row] = row[: self._column] + char + row[self._column + 1 :]
        self._column += 1

    def _line_feed(self, wrapped: bool) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")
            self._wrapped.append(wrapped)
        self._wrapped[self._row] = wrapped
        if len(self._rows) > self._height:
            del self._rows[0], self._wrapped[0]
            self._row -= 1
