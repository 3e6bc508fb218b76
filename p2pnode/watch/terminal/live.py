"""The live view in a terminal: condition, peers, jobs, traffic, last events; above it the invite to copy."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from statistics import fmean

import msgspec
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ...wire.ids import short
from ...wire.status import NodeEvent, NodeStatus
from ..glossary import label
from ..questions import Questions
from ..text import (
    clean,
    duration,
    group_names,
    invitation,
    job_lines,
    job_phrases,
    machine_phrases,
    partner_phrase,
    reason,
    shard_phrase,
    size,
    sparkline,
)
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
KEPT = 200  # rounds


def render(status: NodeStatus, width: int, height: int, curves: str = "") -> RenderableType:
    """The whole view of one status, in at most `height` lines however many peers there are."""
    room = height - 12 - len(status.jobs) - bool(status.page) - bool(status.unwell)
    more = _more(status, curves)[: max(0, room - MIN_EVENTS - MIN_PEERS)]
    room -= len(more)
    events = max(1, min(MIN_EVENTS, room - 2), min(MAX_EVENTS, room // 3))
    parts: list[RenderableType] = [
        _header(status),
        peers_table(status.peers, width, max(2, room - events), group_names(status))
        if status.peers
        else _nobody(status),
        *(_job_line(name, phrases) for name, phrases in job_lines(status.jobs)),
        *more,
        _traffic(status),
        _events(status.events[-events:], apart=room > 2),
    ]
    return Group(*parts)


def _header(status: NodeStatus) -> Panel:
    condition = Text()
    if status.paused:
        condition.append(f"‖ paused: {clean(status.paused, 60)}  ", style="bold yellow")
    condition.append(f"● {status.condition}", style=COLOURS.get(status.condition, "white"))
    condition.append(f"  {reason(status)}", style="dim")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", min_width=len("trouble"))
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
    text = "nobody else yet: send a friend the invite above" if status.invite else "nobody else yet"
    return Text(f"\n  {text}\n", style="dim")


def _job_line(name: str, phrases: list[str]) -> Text:
    line = Text("  ", no_wrap=True, overflow="ellipsis")
    line.append(f"{name}: {phrases[0]}" if name else phrases[0], style="bold green")
    return line.append("".join(f"  ·  {phrase}" for phrase in phrases[1:]))


def _more(status: NodeStatus, curves: str) -> list[Text]:
    """What is shown where there is room, the most important first."""
    machine = [] if status.machine is None else machine_phrases(status.machine, status.limits)
    lines = (curves, partner_phrase(status), "  ·  ".join(machine), shard_phrase(status))
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


def _events(events: tuple[NodeEvent, ...], apart: bool) -> Text:
    lines = Text("\n" if apart else "", no_wrap=True, overflow="ellipsis")
    for event in events:
        clock = time.strftime("%H:%M:%S", time.localtime(event.time))
        lines.append(f"  {clock}  ", style="dim")
        lines.append(f"{clean(event.text, 200)}\n", style="yellow" if event.warning else "")
    return lines


class TerminalCurves:
    """Loss and accuracy over the rounds a view has seen: of its own node, or the means of the peers it observes."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=KEPT)
        self._accuracies: deque[float] = deque(maxlen=KEPT)
        self._round: int | None = None

    def note(self, status: NodeStatus) -> None:
        """Add the values of a status, once a round."""
        round_, loss, accuracy = _now(status)
        if round_ is not None and round_ != self._round:
            self._round = round_
            self._losses += [] if loss is None else [loss]
            self._accuracies += [] if accuracy is None else [accuracy]

    def bars(self, width: int) -> str:
        """Both as bars in about `width` columns; "" before there is anything to draw."""
        drawn = [
            f"{name} {line} {latest}"
            for name, values, form in (
                (label("loss"), self._losses, ".3g"),
                (label("accuracy"), self._accuracies, ".1%"),
            )
            if (line := sparkline(list(values), max(8, width // 3))) and (latest := f"{values[-1]:{form}}")
        ]
        return "   ".join(drawn)


def _now(status: NodeStatus) -> tuple[int | None, float | None, float | None]:
    """Round, loss and accuracy of the first training job; of a node without one, the means of what peers report."""
    if status.jobs:
        own = status.own_state().training()
        return own.round, own.loss, own.accuracy
    there = [peer.training() for peer in status.peers if peer.present]
    rounds = [state.round for state in there if state.round is not None]
    losses = [state.loss for state in there if state.loss is not None]
    accuracies = [state.accuracy for state in there if state.accuracy is not None]
    mean = (fmean(losses) if losses else None), (fmean(accuracies) if accuracies else None)
    return (sum(rounds) if rounds else None), *mean


class TerminalView:
    """Draws a node's status until cancelled, and stops for its questions to the user.

    The invite stands once above it, on one line that can be copied. The picture is as high as the screen allows with
    the invite on it, and nothing else is printed above it: log records are shown among the events.
    """

    def __init__(self, status: Callable[[], NodeStatus], console: Console, questions: Questions | None = None) -> None:
        self._status = status
        self._console = console
        self._questions = questions
        self._above: tuple[str, int, int] | None = None  # the invite on the screen, and the screen's size
        self._log: deque[NodeEvent] = deque(maxlen=MAX_EVENTS)
        self._curves = TerminalCurves()

    def log(self, event: NodeEvent) -> None:
        """Show a log record among the node's events."""
        self._log.append(event)

    async def run(self) -> None:
        while True:
            # A new one after each question: it must not wipe out as many lines as the last picture had.
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                try:
                    while self._questions is None or self._questions.pending is None:
                        self.draw(live)
                        await asyncio.sleep(1 / FRAMES_PER_SECOND)
                finally:
                    self.draw(live)
            await self._questions.put(self._console.file)

    def draw(self, live: Live) -> None:
        status = self._status()
        if self._log:
            events = sorted((*status.events, *self._log), key=lambda event: event.time)
            status = msgspec.structs.replace(status, events=tuple(events))
        self._print_above(*invitation(status))
        width, height = self._console.size
        self._curves.note(status)
        height = max(1, height - self._lines_above(width))
        picture = render(status, width, height, self._curves.bars(width))
        live.update(Cropped(picture, height), refresh=True)

    def _print_above(self, kind: str, text: str) -> None:
        """Print the invite. A new one takes the place of the old one, on a screen that is cleared for it."""
        now = (text, *self._console.size)
        if not text or now == self._above:
            return
        if self._above is not None:
            self._console.clear()
        self._above = now
        self._console.print(Text(HEADINGS[kind], style="dim"), Text(text), sep="\n", soft_wrap=True)

    def _lines_above(self, width: int) -> int:
        return 0 if self._above is None else 1 + -(-len(self._above[0]) // width)


class Cropped:
    """The first lines of a picture."""

    def __init__(self, picture: RenderableType, height: int) -> None:
        self._picture, self._height = picture, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._picture, options, pad=False)[: self._height]
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from line


def farewell(status: NodeStatus) -> str:
    """The last line, after a live view is gone."""
    traffic = status.traffic
    trained = "".join(f"; {', '.join(job_phrases(job)[:2])}" for job in status.jobs.values())
    return (
        f"{clean(status.name)} ({short(status.id)}) left after {duration(status.uptime_seconds)}; "
        f"sent {size(traffic.sent_bytes)}, received {size(traffic.received_bytes)}{trained}"
    )
