"""`shards` for people: the least sure first, names, and nothing a peer can set steers the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from p2pnode.cli import reports
from p2pnode.cli.reports import MAX_SHARDS_SHOWN, journey_table, shards_table, show_shards
from p2pnode.wire.control import ControlAnswer
from p2pnode.wire.status import ShardRow, VisitRow

FOX = "12D3KooWfox00001"
ROW = ShardRow(
    "ab" * 16, 100, 78_500, FOX, (FOX,), states={"active": 97, "quarantined": 3}, confidence=0.25, visits=2,
    reason="copy to owl: \x1b[31mit needs label 3", journey=(VisitRow(FOX, FOX, 7, 0.125, 0.5, 0.0),),
)  # fmt: skip


def drawn(table: Table) -> str:
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_table_of_shards() -> None:
    sure = ShardRow("cd" * 16, 90, 10, FOX, confidence=0.75)
    unseen = ShardRow("ef" * 16, 90, 10, FOX)
    text = drawn(shards_table([unseen, sure, ROW], {FOX: "\x1b[31mfox"}))
    assert text.index("abababab") < text.index("cdcdcdcd") < text.index("efefefef")
    assert "97 active, 3 quarantined" in text and "fox" in text and "it needs label 3" in text
    assert "\x1b" not in text


def test_a_journey() -> None:
    text = drawn(journey_table(ROW, {FOX: "fox"}))
    assert "fox" in text and "0.12" in text and "0.50" in text


@pytest.mark.parametrize(("rows", "said"), [((), "no data"), ((ROW,) * (MAX_SHARDS_SHOWN + 3), "and 3 more")])
def test_none_and_many(rows, said, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(reports, "ask", lambda data_dir, request: ControlAnswer(shards=rows))
    monkeypatch.setattr(reports, "names_at", lambda data_dir: {})
    show_shards(tmp_path, "", False)
    assert said in capsys.readouterr().out


def test_one_shard_for_people_and_machines(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(reports, "ask", lambda data_dir, request: ControlAnswer(shards=(ROW,)))
    monkeypatch.setattr(reports, "names_at", lambda data_dir: {FOX: "fox"})
    show_shards(tmp_path, "abab", False)
    assert "held by fox, kept by fox" in capsys.readouterr().out
    show_shards(tmp_path, "abab", True)
    assert '"before": 0.125' in capsys.readouterr().out
