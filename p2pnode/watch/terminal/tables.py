"""The table of who is there, in the live view and as `peers` prints it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ...wire.ids import short
from ...wire.run import GENESIS
from ...wire.status import PeerRow
from ..text import ago, clean

WHOLE_REASON = 200  # letters
LONGEST_NAME = 24  # in a terminal; longer ones go on in the next line
SHORTEST_REASON = 24  # in a line
GAP = 3  # beside each column


class TableColumn(NamedTuple):
    """What one column says of a peer. Of those that do not fit, the ones of the least worth are left out."""

    heading: str
    cell: Callable[[PeerRow], Text]
    worth: int
    right: bool = False


WHO, WHY = "peer", "last chosen because"
NEEDED = 9  # the worth of columns that are never left out


def peers_table(peers: Sequence[PeerRow], width: int | None, most: int | None = None) -> Table:
    """Present peers first, as many columns as `width` has room for; None: all of them, a line for each peer.

    `most` lines at the most, where reasons may be cut; what did not fit is counted in the last one.
    """
    ranked = sorted(peers, key=lambda row: (not row.present, row.name, row.id))
    fitting = ranked if most is None or len(ranked) <= most else ranked[: max(0, most - 1)]
    columns = _known(peers) if width is None else _fitting(_known(peers), fitting, width)
    table = Table(box=box.SIMPLE_HEAD, expand=width is not None, pad_edge=False, header_style="bold")
    one_line = width is None or most is not None
    wide = WHY if any(column.heading == WHY for column in columns) else WHO
    for column in columns:
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            ratio=1 if column.heading == wide and width is not None else None,
            max_width=LONGEST_NAME if column.heading == WHO != wide and width is not None else None,
            no_wrap=one_line or column.heading not in (WHO, WHY),
            overflow="ellipsis" if one_line else "fold",
        )
    for row in fitting:
        table.add_row(*(column.cell(row) for column in columns), style="" if row.present else "dim")
    if len(fitting) < len(ranked):
        table.add_row(Text(f"+{len(ranked) - len(fitting)} more", style="dim"))
    return table


def _known(peers: Sequence[PeerRow]) -> list[TableColumn]:
    """The columns that say something of somebody. Cells are Text, never strings: rich would read markup in them."""
    learning = any(row.round is not None for row in peers)
    likeness = any(row.similarity is not None or row.chosen for row in peers)
    return [
        TableColumn(WHO, _name, NEEDED),
        TableColumn("id", lambda row: Text(clean(short(row.id), 8), style="cyan"), 8),
        TableColumn("role", lambda row: Text(clean(row.role, 12)), 2),
        *([TableColumn("round", lambda row: _number(row.round, "d"), 6, True)] if learning else []),
        *([TableColumn("loss", lambda row: _number(row.loss, ".3g"), 3, True)] if learning else []),
        *([TableColumn("updates", lambda row: _number(row.update_norm, ".2%"), 1, True)] if learning else []),
        *([TableColumn("circle", _circle, 7)] if any(row.circle for row in peers) else []),
        *([TableColumn("community", _community, NEEDED)] if likeness else []),
        *([TableColumn("alike", lambda row: _number(row.similarity, ".3f"), NEEDED, True)] if likeness else []),
        *([TableColumn(WHY, lambda row: Text(clean(row.chosen, WHOLE_REASON)), NEEDED)] if likeness else []),
        TableColumn("answers in", lambda row: Text(_latency(row)), 5, True),
        TableColumn("last heard", lambda row: Text(ago(row.heard_seconds_ago)), 4, True),
        TableColumn("faults", lambda row: Text(str(row.faults), style="yellow" if row.faults else "dim"), 0, True),
    ]


def _fitting(columns: list[TableColumn], rows: Sequence[PeerRow], width: int) -> list[TableColumn]:
    """Without the least worthy ones, so that names and reasons can be read in what is left."""
    widths = {column.heading: _least_width(column, rows) for column in columns}
    kept = list(columns)
    while sum(widths[column.heading] + GAP for column in kept) > width:
        least = min(kept, key=lambda column: column.worth)
        if least.worth == NEEDED:
            break
        kept.remove(least)
    return kept


def _least_width(column: TableColumn, rows: Sequence[PeerRow]) -> int:
    """All of it, but for what may go on in the next line."""
    most = {WHO: LONGEST_NAME, WHY: SHORTEST_REASON}.get(column.heading, WHOLE_REASON)
    return min(most, max([len(column.heading), *(column.cell(row).cell_len for row in rows)]))


def _name(row: PeerRow) -> Text:
    return Text("● ", style="green" if row.present else "red") + Text(clean(row.name) or "(no name)")


def _number(value: float | None, form: str) -> Text:
    return Text("–" if value is None else f"{value:{form}}")


def _circle(row: PeerRow) -> Text:
    return Text(clean(row.circle[:8] or GENESIS))


def _community(row: PeerRow) -> Text:
    return Text(clean(short(row.community), 8), style="cyan")


def _latency(row: PeerRow) -> str:
    return "–" if row.latency_ms is None else f"{row.latency_ms:.0f} ms"
