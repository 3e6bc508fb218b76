"""`log` and `blame` for people: tables with names, and nothing a peer can set steers the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from p2pnode.cli.reports import SHOWN, blame_table, log_rows, log_table, show_blame, show_log
from p2pnode.merging.policy import MergeResult
from p2pnode.training.progress import MAX_MERGES, TrainProgress
from p2pnode.wire.control import ControlAnswer
from p2pnode.wire.ids import PeerId
from p2pnode.wire.status import MergeRow
from tests.watch.test_terminal import row, status

FOX, OWL = PeerId("12D3KooWfox00001"), PeerId("12D3KooWowl00002")


def drawn(table: Table) -> str:
    console = Console(file=io.StringIO(), width=160, no_color=True)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_merge_names_the_partner_and_how_much_came_since_the_one_before() -> None:
    train_progress = TrainProgress(me=PeerId("me"))
    train_progress.note_exchange(FOX, 100, 2000, 1.0)
    train_progress.note_exchange(OWL, 10, 20, 2.0)
    train_progress.note_exchange(FOX, 1, 2, 3.0)
    train_progress.note(0.5, MergeResult("", 7, 0.01), 4.0)
    train_progress.note(0.25, MergeResult("", 0, 0.02), 5.0)
    first, second = train_progress.merges
    assert first == MergeRow(1, 4.0, (FOX, OWL), 111, 2022, 7, 0.5, 0.01)
    assert second == MergeRow(2, 5.0, (), 0, 0, 0, 0.25, 0.02)


def test_the_log_is_bounded() -> None:
    train_progress = TrainProgress()
    for number in range(MAX_MERGES + 10):
        train_progress.note(float(number), MergeResult("", 0, 0.0), float(number))
    assert len(train_progress.merges) == MAX_MERGES
    assert train_progress.merges[-1].round == MAX_MERGES + 10


def test_the_log_as_a_table() -> None:
    merges = [MergeRow(number, 0.0, (FOX, OWL), 1234, 5678, 3, 1.0 / number, 0.01) for number in range(1, SHOWN + 3)]
    text = drawn(log_table(merges, {FOX: "\x1b[31mfox"}))
    assert "\x1b" not in text
    assert "fox, owl00002" in text
    assert " 1  " not in text.splitlines()[3], "older ones are left out"
    assert "0.5" not in drawn(log_table(merges[:1], {}))
    assert "0.5" in drawn(log_table(merges[:2], {})), "the loss after a merge is that of the next round"


def test_the_log_for_machines_has_the_loss_before_and_after_each_merge() -> None:
    merges = [MergeRow(number, 0.0, (FOX,), 12, 34, 3, 1.0 / number, 0.01) for number in (1, 2)]
    rows = log_rows(merges)
    assert [(row["loss_before"], row["loss_after"]) for row in rows] == [(1.0, 0.5), (0.5, None)]
    assert [(row["partners"], row["sent_bytes"], row["received_bytes"]) for row in rows] == [((FOX,), 12, 34)] * 2
    assert log_rows([]) == []


def test_an_exchange_tells_what_the_merge_after_it_did_to_the_loss() -> None:
    train_progress = TrainProgress(me=PeerId("me"))
    train_progress.note_exchange(FOX, 1, 1, 1.0)
    train_progress.note(0.5, MergeResult("", 1, 0.01), 2.0)
    assert train_progress.partners[FOX].loss_change is None
    train_progress.note_exchange(OWL, 1, 1, 3.0)
    train_progress.note(0.25, MergeResult("", 1, 0.01), 4.0)
    assert train_progress.partners[FOX].loss_change == -0.25
    assert train_progress.partners[OWL].loss_change is None
    train_progress.note_exchange(FOX, 1, 1, 5.0)
    assert (train_progress.partners[FOX].count, train_progress.partners[FOX].loss_change) == (2, -0.25)


def test_blame_as_a_table() -> None:
    shares = {str(FOX): {"in.weight": 0.25, "out.weight": 0.5}, str(OWL): {"in.weight": 0.75, "out.weight": 0.5}}
    text = drawn(blame_table(shares, {FOX: "fox", OWL: "owl"}))
    head = next(line for line in text.splitlines() if "layer" in line)
    assert head.index("owl") < head.index("fox")
    assert "75.0%" in text


def test_both_for_machines_come_with_the_names_of_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        "status": ControlAnswer(status=status(name="me", peers=(row("fox", id=FOX),))),
        "log": ControlAnswer(merges=(MergeRow(1, 0.0, (FOX,), 12, 34, 3, 0.5, 0.01),)),
        "blame": ControlAnswer(blame={FOX: {"in.weight": 1.0}}),
    }
    monkeypatch.setattr("p2pnode.cli.reports.ask", lambda data_dir, request, *_: answers[request.do])
    show_log(Path("anywhere"), as_json=True)
    logged = json.loads(capsys.readouterr().out)
    assert (logged["merges"][0]["loss_before"], logged["names"][FOX]) == (0.5, "fox")
    show_blame(Path("anywhere"), as_json=True)
    blamed = json.loads(capsys.readouterr().out)
    assert (blamed["blame"], blamed["names"][FOX]) == ({FOX: {"in.weight": 1.0}}, "fox")
