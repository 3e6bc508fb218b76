"""`shards`: the data a node has, what its model makes of them, and the journey of one of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from ..node.control import ControlRequest, ask
from ..watch.text import clean, size
from ..wire.status import ShardRow
from .history import name_of, names_of
from .reports import console, print_json

ID_CHARS = 8
SHOWN = 100  # shards, for people


def show_shards(data_dir: Path, shard: str, as_json: bool) -> None:
    """All shards of the running node, or the journey of the one whose id begins with `shard`."""
    rows = ask(data_dir, ControlRequest("shards", shard=shard)).shards
    if as_json:
        print_json({"shards": rows})
    elif not rows:
        print("no data is here yet")
    elif shard:
        _show_journey(rows[0], names_of(data_dir))
    else:
        console().print(shards_table(rows, names_of(data_dir)))
        if len(rows) > SHOWN:
            print(f"and {len(rows) - SHOWN} more; --json tells of all")


def shards_table(rows: Sequence[ShardRow], names: Mapping[str, str]) -> Table:
    """A row for each shard, the least sure first: those are the ones that travel."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in ("shard", "samples", "size", "confidence", "visits"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("holder", "from", "states", "why"):
        table.add_column(column)
    ranked = sorted(rows, key=lambda row: (2.0 if row.confidence is None else row.confidence, row.id))
    for row in ranked[:SHOWN]:
        table.add_row(
            Text(row.id[:ID_CHARS], style="cyan"),
            str(row.samples),
            size(row.size_bytes),
            "–" if row.confidence is None else f"{row.confidence:.2f}",
            str(row.visits),
            Text(name_of(row.holder, names)),
            "others" if row.received else "here",
            Text(_states(row)),
            Text(clean(row.why, 80)),
        )
    return table


def journey_table(row: ShardRow, names: Mapping[str, str]) -> Table:
    """A line for each stay that is known, oldest first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in ("at", "model", "round", "before", "after"):
        table.add_column(column, justify="right", no_wrap=True)
    for visit in row.journey:
        table.add_row(
            time.strftime("%m-%d %H:%M:%S", time.localtime(visit.time)),
            Text(name_of(visit.model, names)),
            str(visit.round) if visit.round else "–",
            f"{visit.before:.2f}",
            f"{visit.after:.2f}",
        )
    return table


def _show_journey(row: ShardRow, names: Mapping[str, str]) -> None:
    keepers = ", ".join(name_of(peer, names) for peer in row.keepers) or "nobody else"
    sure = "not seen yet" if row.confidence is None else f"confidence {row.confidence:.2f} here"
    where = "here" if row.here else "elsewhere"
    lines = [
        f"shard {row.id}: {row.samples} samples, {size(row.size_bytes)}, {sure}",
        f"held by {name_of(row.holder, names) or 'nobody yet'}, kept by {keepers}; its samples are {where}",
        f"{_states(row)}{f'; {clean(row.why, 120)}' if row.why else ''}",
    ]
    print("\n".join(line for line in lines if line))
    if row.journey:
        console().print(journey_table(row, names))
    else:
        print("no visit is told yet")


def _states(row: ShardRow) -> str:
    return ", ".join(f"{count} {state}" for state, count in row.states.items())
