"""Reads the code of an invite from where an argument says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from ..wire.errors import UsageError
from ..wire.invite import MAX_CODE_CHARS


def read_code_argument(text: str, stdin: TextIO) -> str:
    """The code of an invite as an argument names it: `-` is a line of standard input, `@FILE` a file's first line.

    Everybody on a machine can read the arguments of its processes, and that of a private run holds its key. UsageError
    when the file cannot be read. Anything else is returned as it is.
    """
    if text == "-":
        if stdin.isatty():
            sys.stderr.write("paste the invite: ")
            sys.stderr.flush()
        return _first_line(stdin, "standard input")
    if not text.startswith("@"):
        return text
    try:
        with Path(text[1:]).expanduser().open(encoding="utf-8", errors="replace") as file:
            return _first_line(file, text[1:])
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the invite from {text[1:]} ({reason}); check the path") from None


def _first_line(file: TextIO, name: str) -> str:
    for line in iter(lambda: file.readline(MAX_CODE_CHARS + 1000), ""):
        if line.strip():
            return line.strip()
    raise UsageError(f"there is no invite in {name}; it should be the founder's line, or the code in it")
