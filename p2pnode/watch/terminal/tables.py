"""The table of peers, in the live view and as the command `peers` prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ...wire.ids import short
from ...wire.run import GENESIS
from ...wire.status import Figure, PeerState
from ..glossary import label
from ..text import ago, clean, figure_text

WHOLE_REASON = 200  # characters
LONGEST_NAME = 24  # in a terminal; longer ones go on in the next line
SHORTEST_REASON = 24  # in a line
GAP = 3  # between columns
REPORTED = 7  # figures of a kind of work that are worth more than answer times
NO_NAMES: Mapping[str, str] = MappingProxyType({})


class TableColumn(NamedTuple):
    """What one column shows of a peer. Where not all columns fit, those of the least worth are left out."""

    heading: str
    cell: Callable[[PeerState], Text]
    worth: int
    right: bool = False


WHO, REASON = "peer", label("reason")
NEEDED = 9  # the worth of columns that are never left out


def peers_table(
    peers: Sequence[PeerState], width: int | None, limit: int | None = None, names: Mapping[str, str] = NO_NAMES
) -> Table:
    """Present peers first, with as many columns as fit into `width`; None: all columns, one line for each peer.

    `names` are what communities and circles are called.
    With a `limit` there are at most `limit` lines: reasons are cut, and the last line counts the peers left out.
    """
    ranked = sorted(peers, key=lambda row: (not row.present, row.name, row.id))
    fitting = ranked if limit is None or len(ranked) <= limit else ranked[: max(0, limit - 1)]
    known = _known(peers, names)
    columns = known if width is None else _fitting([known[0], *_reported(peers), *known[1:]], fitting, width)
    table = Table(box=box.SIMPLE_HEAD, expand=width is not None, pad_edge=False, header_style="bold")
    one_line = width is None or limit is not None
    wide = REASON if any(column.heading == REASON for column in columns) else WHO
    for column in columns:
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            ratio=1 if column.heading == wide and width is not None else None,
            max_width=LONGEST_NAME if column.heading == WHO != wide and width is not None else None,
            no_wrap=one_line or column.heading not in (WHO, REASON),
            overflow="ellipsis" if one_line else "fold",
        )
    for row in fitting:
        table.add_row(*(column.cell(row) for column in columns), style="" if row.present else "dim")
    if len(fitting) < len(ranked):
        table.add_row(Text(f"+{len(ranked) - len(fitting)} more", style="dim"))
    return table


def _known(peers: Sequence[PeerState], names: Mapping[str, str]) -> list[TableColumn]:
    """The columns that have a value for some peer. Cells are Text, never strings: rich would read markup in them."""
    training = any(row.training().round is not None for row in peers)

    def community(row: PeerState) -> Text:
        return Text(names.get(row.community) or clean(short(row.community), 8), style="cyan")

    def circle(row: PeerState) -> Text:
        named = row.job().circle or GENESIS
        return Text(names.get(named) or clean(named, 12))

    reported = any(row.job().figures for row in peers)  # then their room is needed
    compared = any(row.similarity is not None or (row.reason and not reported) for row in peers)
    return [
        TableColumn(WHO, _name, NEEDED),
        TableColumn("id", lambda row: Text(clean(short(row.id), 8), style="cyan"), 8),
        TableColumn(label("role"), lambda row: Text(clean(row.role, 12)), 2),
        *([TableColumn(label("round"), lambda row: _number(row.training().round, "d"), 6, True)] if training else []),
        *([TableColumn(label("loss"), lambda row: _number(row.training().loss, ".3g"), 3, True)] if training else []),
        *(
            [TableColumn(label("update_norm"), lambda row: _number(row.training().update_norm, ".2%"), 1, True)]
            if training
            else []
        ),
        *([TableColumn(label("circle"), circle, 7)] if any(row.job().circle for row in peers) else []),
        *([TableColumn(label("community"), community, NEEDED)] if compared else []),
        *(
            [TableColumn(label("similarity"), lambda row: _number(row.similarity, ".3f"), NEEDED, True)]
            if compared
            else []
        ),
        *([TableColumn(REASON, lambda row: Text(clean(row.reason, WHOLE_REASON)), NEEDED)] if compared else []),
        TableColumn(label("latency_ms"), lambda row: Text(_latency(row)), 5, True),
        TableColumn(label("heard_seconds_ago"), lambda row: Text(ago(row.heard_seconds_ago)), 4, True),
        TableColumn(
            label("faults"), lambda row: Text(str(row.faults), style="yellow" if row.faults else "dim"), 0, True
        ),
    ]


def _reported(peers: Sequence[PeerState]) -> list[TableColumn]:
    """Columns about a kind of work that trains no single model; what it reports first is worth most."""
    if any(row.training().round is not None for row in peers):
        return []
    figures = {figure.name: figure for row in peers for figure in row.job().figures}

    def column(name: str, figure: Figure, worth: int) -> TableColumn:
        def cell(row: PeerState) -> Text:
            found = next((one for one in row.job().figures if one.name == name), None)
            return Text("–" if found is None else figure_text(found.value, found.unit))

        return TableColumn(clean(figure.label or name), cell, worth, not isinstance(figure.value, str))

    return [column(name, figure, 8 if place < REPORTED else 3) for place, (name, figure) in enumerate(figures.items())]


def _fitting(columns: list[TableColumn], rows: Sequence[PeerState], width: int) -> list[TableColumn]:
    """The columns of most worth that fit into `width` together."""
    widths = {column.heading: _least_width(column, rows) for column in columns}
    kept = list(columns)
    while sum(widths[column.heading] + GAP for column in kept) > width:
        least = min(kept, key=lambda column: column.worth)
        if least.worth == NEEDED:
            break
        kept.remove(least)
    return kept


def _least_width(column: TableColumn, rows: Sequence[PeerState]) -> int:
    """The width a column needs; names and reasons may go on in the next line."""
    longest = {WHO: LONGEST_NAME, REASON: SHORTEST_REASON}.get(column.heading, WHOLE_REASON)
    return min(longest, max([len(column.heading), *(column.cell(row).cell_len for row in rows)]))


def _name(row: PeerState) -> Text:
    return Text("● ", style="green" if row.present else "red") + Text(clean(row.name) or "(no name)")


def _number(value: float | None, form: str) -> Text:
    return Text("–" if value is None else f"{value:{form}}")


def _latency(row: PeerState) -> str:
    return "–" if row.latency_ms is None else f"{row.latency_ms:.0f} ms"
