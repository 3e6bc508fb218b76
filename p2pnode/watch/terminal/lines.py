"""One line per event, for logs and pipes: plain for people, JSON for machines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Literal, TextIO

from ...wire.status import NodeEvent
from ..text import MAX_COMMAND, clean

MAX_TEXT = 600
HEADINGS = {
    "invite": "invite a friend with this command:",
    "address": "others join through this address:",
    "page": "look at the swarm here:",
}


def plain_line(event: NodeEvent) -> str:
    """`12:34:56 text` in local time, marked if it is a warning. Text to be copied stands on a line of its own."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.time))
    if event.kind in HEADINGS:
        return f"{clock} {HEADINGS[event.kind]}\n{clean(event.text, MAX_COMMAND)}"
    return f"{clock} {'warning: ' if event.warning else ''}{clean(event.text, MAX_TEXT)}"


def json_line(event: NodeEvent) -> str:
    """A JSON object with time, kind, text and warning, in ASCII so that nothing in it can steer a terminal."""
    fields = {"time": round(event.time, 3), "kind": event.kind, "text": event.text, "warning": event.warning}
    return json.dumps(fields)


def line_writer(stream: TextIO, kind: Literal["plain", "json"], quiet: bool) -> Callable[[NodeEvent], None]:
    """A listener that writes events; `quiet` writes warnings only. A closed stream does not stop the node."""
    render = json_line if kind == "json" else plain_line
    broken = False

    def write(event: NodeEvent) -> None:
        nonlocal broken
        if broken or (quiet and not event.warning):
            return
        try:
            stream.write(render(event) + "\n")
            stream.flush()
        except (OSError, ValueError):
            broken = True

    return write
