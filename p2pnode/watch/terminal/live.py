"""The live view in a terminal: state, peers, traffic, last events, and the invite to copy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...wire.ids import short
from ...wire.status import NodeEvent, NodeStatus, TrainStatus
from ..text import clean, duration, invitation, learning_words, machine_words, partner_words, shard_words, size, why
from .curves import TerminalCurves
from .lines import HEADINGS
from .tables import peers_table

FRAMES_PER_SECOND = 4
COLOURS = {
    "starting": "yellow",
    "connected": "green",
    "alone": "cyan",
    "searching": "yellow",
    "network down": "bold red",
    "leaving": "magenta",
}
MIN_EVENTS = 3
MIN_PEERS = 4
MAX_EVENTS = 8


def render(status: NodeStatus, width: int, height: int, curves: str = "") -> RenderableType:
    """The whole view of one status; a little less than `height` lines whatever the number of peers."""
    invite = _invite(status, width)
    room = height - 13 - (status.learning is not None) - bool(status.page) - invite.plain.count("\n")
    room -= bool(status.unwell)
    more = _more(status, curves)[: max(0, room - MIN_EVENTS - MIN_PEERS)]
    room -= len(more)
    events = max(MIN_EVENTS, min(MAX_EVENTS, room // 3))
    parts: list[RenderableType] = [
        _header(status),
        peers_table(status.peers, width, max(2, room - events)) if status.peers else _nobody(status),
        *([_learning(status.learning)] if status.learning is not None else []),
        *more,
        _traffic(status),
        _events(status.events[-events:]),
        invite,
    ]
    return Group(*parts)


def _header(status: NodeStatus) -> Panel:
    condition = Text()
    if status.guest.paused:
        condition.append(f"‖ resting: {clean(status.guest.paused, 60)}  ", style="bold yellow")
    condition.append(f"● {status.condition}", style=COLOURS.get(status.condition, "white"))
    condition.append(f"  {why(status)}", style="dim")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="ellipsis", no_wrap=True)
    facts.add_row("state", condition)
    facts.add_row("run", _run(status))
    facts.add_row("node", Text(f"{clean(status.id, 64)}  up {duration(status.uptime_seconds)}"))
    if status.page:
        facts.add_row("page", Text(status.page, style=f"link {status.page}"))
    if status.unwell:
        facts.add_row("trouble", Text(clean("; ".join(status.unwell), 200), style="bold red"))
    title = Text(clean(status.name), style="bold")
    if status.role != "node":
        title.append(f" ({clean(status.role, 12)})", style="dim")
    colour = COLOURS.get(status.condition, "")
    return Panel(facts, title=title, title_align="left", box=box.ROUNDED, border_style=colour)


def _run(status: NodeStatus) -> Text:
    if not status.run:
        return Text("none: a meeting point for any run" if status.role == "bootstrap" else "not known yet", style="dim")
    return Text(clean(status.run, 64)).append("  private" if status.private else "", style="yellow")


def _nobody(status: NodeStatus) -> Text:
    words = "nobody else yet: send a friend the invite below" if status.invite else "nobody else yet"
    return Text(f"\n  {words}\n", style="dim")


def _learning(learning: TrainStatus) -> Text:
    first, *others = learning_words(learning)
    line = Text("  ", no_wrap=True, overflow="ellipsis")
    line.append(first, style="bold green")
    return line.append("".join(f"  ·  {words}" for words in others))


def _more(status: NodeStatus, curves: str) -> list[Text]:
    """What is shown where there is room, the most telling first."""
    machine = [] if status.machine is None else machine_words(status.machine, status.guest)
    lines = (curves, partner_words(status), "  ·  ".join(machine), shard_words(status))
    return [Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in lines if line]


def _traffic(status: NodeStatus) -> Text:
    traffic = status.traffic
    line = Text("  ", no_wrap=True, overflow="ellipsis")
    line.append(f"↑ {size(traffic.sent_bytes)}  ↓ {size(traffic.received_bytes)}", style="bold")
    line.append(f"   {traffic.calls_made} calls made, {traffic.calls_served} served, {traffic.refused} refused", "dim")
    if status.daemon_starts > 1:
        line.append(f"   daemon started {status.daemon_starts} times", "yellow")
    if abs(status.clock_offset_seconds) >= 2:
        line.append(f"   clock {-status.clock_offset_seconds:+.0f} s off the swarm's", "yellow")
    return line


def _events(events: tuple[NodeEvent, ...]) -> Text:
    lines = Text("\n", no_wrap=True, overflow="ellipsis")
    for event in events:
        clock = time.strftime("%H:%M:%S", time.localtime(event.time))
        lines.append(f"  {clock}  ", style="dim")
        lines.append(f"{clean(event.text, 200)}\n", style="yellow" if event.warning else "")
    return lines


def _invite(status: NodeStatus, width: int) -> Text:
    kind, words = invitation(status)
    if not words:
        return Text("")
    lines = shell_lines(words, width)
    return Text.assemble((f"  {HEADINGS[kind]}\n", "dim"), ("\n".join(lines), "bold cyan"), overflow="fold")


def shell_lines(command: str, width: int) -> list[str]:
    """A command as lines shorter than `width` that a shell reads as the same command when they are copied."""
    if len(command) < width:
        return [command]
    pieces = command.replace(" --", " \n  --").split("\n")
    lines = [fold for piece in pieces for fold in _folded(piece, max(2, width - 2))]
    return [f"{line}\\" for line in lines[:-1]] + lines[-1:]


def _folded(piece: str, width: int) -> list[str]:
    return [piece[start : start + width] for start in range(0, len(piece), width)]


class TerminalView:
    """Draws a node's status until cancelled. The invite is also printed once above, on one line that can be copied."""

    def __init__(self, status: Callable[[], NodeStatus], console: Console) -> None:
        self._status = status
        self._console = console
        self._invite = ""
        self._curves = TerminalCurves()

    async def run(self) -> None:
        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            try:
                while True:
                    self.draw(live)
                    await asyncio.sleep(1 / FRAMES_PER_SECOND)
            finally:
                self.draw(live)

    def draw(self, live: Live) -> None:
        status = self._status()
        _, words = invitation(status)
        if words and words != self._invite:
            self._invite = words
            self._console.print(Text(words), soft_wrap=True)
        self._curves.note(status)
        width = self._console.width
        live.update(render(status, width, self._console.height, self._curves.words(width)), refresh=True)


def farewell(status: NodeStatus) -> str:
    """The last line after a live view is gone."""
    traffic, learning = status.traffic, status.learning
    learned = f"; {', '.join(learning_words(learning)[:2])}" if learning is not None else ""
    return (
        f"{clean(status.name)} ({short(status.id)}) left after {duration(status.uptime_seconds)}; "
        f"sent {size(traffic.sent_bytes)}, received {size(traffic.received_bytes)}{learned}"
    )
