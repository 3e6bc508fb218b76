"""`log` and `blame`: what went into the weights, and from whom; asked of the running node."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from ..node.control import WORK_LIMIT, ControlRequest, ask
from ..watch.text import clean, size
from ..wire.ids import short
from ..wire.status import MergeRow
from .reports import console, print_json

SHOWN = 30  # merges, for people


def show_log(data_dir: Path, as_json: bool) -> None:
    """The node's merges, the newest last."""
    merges = ask(data_dir, ControlRequest("log")).merges
    if as_json:
        print_json({"merges": log_rows(merges), "names": names_of(data_dir)})
    elif merges:
        console().print(log_table(merges, names_of(data_dir)))
    else:
        print("no round is done yet")


def log_rows(merges: Sequence[MergeRow]) -> list[dict[str, object]]:
    """A row for each merge. The loss before it is that of the round it ended, the loss after it that of the next."""
    rows = [msgspec.structs.asdict(row) for row in merges]
    befores = [row.pop("loss") for row in rows]
    afters = [*befores[1:], None][: len(rows)]
    return [
        {**row, "loss_before": before, "loss_after": after}
        for row, before, after in zip(rows, befores, afters, strict=True)
    ]


def log_table(merges: Sequence[MergeRow], names: Mapping[str, str]) -> Table:
    """The loss before a merge is that of the round it ended, the loss after it that of the next."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in ("round", "at", "sent", "received", "entries", "loss before", "after", "updates"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("partners")
    for row, after in list(zip(merges, [*merges[1:], None], strict=True))[-SHOWN:]:
        table.add_row(
            str(row.round),
            time.strftime("%H:%M:%S", time.localtime(row.time)),
            size(row.sent_bytes),
            size(row.received_bytes),
            str(row.entries),
            f"{row.loss:.4g}",
            "–" if after is None else f"{after.loss:.4g}",
            f"{row.update_norm:.2%}",
            Text(", ".join(name_of(peer, names) for peer in row.partners) or "–"),
        )
    return table


def show_blame(data_dir: Path, as_json: bool) -> None:
    """Each author's share of each layer."""
    shares = ask(data_dir, ControlRequest("blame"), WORK_LIMIT).blame
    if as_json:
        print_json({"blame": shares, "names": names_of(data_dir)})
    elif shares:
        console().print(blame_table(shares, names_of(data_dir)))
    else:
        print("nobody has added anything yet")


def blame_table(shares: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> Table:
    """A row for each layer, a column for each author, who added most first."""
    authors = sorted(shares, key=lambda author: (-sum(shares[author].values()), author))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("layer")
    for author in authors:
        table.add_column(Text(name_of(author, names)), justify="right", no_wrap=True)
    for layer in shares[authors[0]]:
        table.add_row(Text(clean(layer, 60)), *(f"{shares[author][layer]:.1%}" for author in authors))
    return table


def names_of(data_dir: Path) -> dict[str, str]:
    status = ask(data_dir, ControlRequest("status")).status
    return {} if status is None else {status.id: status.name, **{row.id: row.name for row in status.peers}}


def name_of(peer: str, names: Mapping[str, str]) -> str:
    """What a peer calls itself, else its short id."""
    return clean(names.get(peer, ""), 24) or short(peer)
