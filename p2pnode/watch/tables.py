"""The table of who is there, in the live view and as `peers` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ..ids import short
from ..node.status import PeerRow
from ..run import GENESIS
from .text import ago, clean


def peers_table(peers: Sequence[PeerRow], most: int | None = None) -> Table:
    """Present peers first. `most` rows at the most; what did not fit is counted in the last."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    table.add_column("peer", ratio=3, no_wrap=True)
    table.add_column("id", no_wrap=True)
    table.add_column("role", ratio=1, no_wrap=True)
    learning = any(row.round is not None for row in peers)
    if learning:
        table.add_column("round", justify="right", no_wrap=True)
        table.add_column("loss", justify="right", no_wrap=True)
        table.add_column("updates", justify="right", no_wrap=True)
    circles = any(row.circle for row in peers)
    if circles:
        table.add_column("circle", no_wrap=True)
    likeness = any(row.similarity is not None or row.chosen for row in peers)
    if likeness:
        table.add_column("community", no_wrap=True)
        table.add_column("alike", justify="right", no_wrap=True)
        table.add_column("last chosen because", ratio=3, no_wrap=True)
    table.add_column("answers in", justify="right", no_wrap=True)
    table.add_column("last heard", justify="right", no_wrap=True)
    table.add_column("faults", justify="right", no_wrap=True)
    ranked = sorted(peers, key=lambda row: (not row.present, row.name, row.id))
    fitting = ranked if most is None or len(ranked) <= most else ranked[: max(0, most - 1)]
    for row in fitting:
        table.add_row(*_cells(row, learning, circles, likeness), style="" if row.present else "dim")
    if len(fitting) < len(ranked):
        table.add_row(Text(f"+{len(ranked) - len(fitting)} more", style="dim"))
    return table


def _cells(row: PeerRow, learning: bool, circles: bool, likeness: bool) -> tuple[Text, ...]:
    """Text objects, never strings: rich would read markup in a peer's name."""
    dot = Text("● ", style="green" if row.present else "red")
    latency = "–" if row.latency_ms is None else f"{row.latency_ms:.0f} ms"
    return (
        dot + Text(clean(row.name) or "(no name)"),
        Text(clean(short(row.id), 8), style="cyan"),
        Text(clean(row.role, 12)),
        *(_learned(row) if learning else ()),
        *([Text(clean(row.circle[:8] or GENESIS))] if circles else ()),
        *(_alike(row) if likeness else ()),
        Text(latency),
        Text(ago(row.heard_seconds_ago)),
        Text(str(row.faults), style="yellow" if row.faults else "dim"),
    )


def _learned(row: PeerRow) -> tuple[Text, ...]:
    """What a peer says of its latest round."""
    told = (row.round, "d"), (row.loss, ".3g"), (row.update_norm, ".2%")
    return tuple(Text("–" if value is None else f"{value:{form}}") for value, form in told)


def _alike(row: PeerRow) -> tuple[Text, ...]:
    """How near its model is to ours, and why it was last our partner."""
    similarity = "–" if row.similarity is None else f"{row.similarity:.3f}"
    return Text(clean(short(row.community), 8), style="cyan"), Text(similarity), Text(clean(row.chosen, 60))
