"""Community, similarity and the reason of the last choice are shown where known, and cannot steer a terminal."""

from __future__ import annotations

import io
import os
import re

import pytest
from rich.console import Console

from p2pnode.cli import reports as report
from p2pnode.watch.terminal.tables import peers_table
from tests.watch.test_terminal import row

REASONS = {
    "hare": "at random among all: nobody's fingerprint decides alone",
    "a-name-of-forty-letters-that-a-user-gave": "bridge to community ABCDEFGH, joined at 0.123",
}
LEARNERS = [
    row(
        name, {"round": 1234, "loss": 0.123, "update_norm": 0.1, "circle": "98fe76dc" * 5},
        community="12D3KooWabcdefgh", similarity=0.9312, reason=reason,
    )
    for name, reason in REASONS.items()
]  # fmt: skip


def shown(*rows, width: int = 200) -> str:
    text = io.StringIO()
    console = Console(width=width, file=text, no_color=True)
    console.print(peers_table(rows, width))
    return text.getvalue()


def column(text: str, heading: str) -> str:
    """What stands under a heading, lines joined by a space."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = lines[0].index(heading)
    end = next((found.start() for found in re.finditer(r"(?<=   )\S", lines[0]) if found.start() > start), None)
    return " ".join(" ".join(line[start:end] for line in lines[2:]).split())


@pytest.mark.parametrize("width", [80, 100, 120, 160, 250])
def test_names_and_whole_reasons_can_be_read_at_any_width(width: int) -> None:
    text = shown(*LEARNERS, width=width)
    assert max(map(len, text.splitlines())) <= width
    for reason in REASONS.values():
        assert reason in column(text, "last chosen because")
    assert "● hare" in column(text, "peer")
    assert "a-name-of-forty-letters-that-a-user-gave" in column(text, "peer").replace(" ", "")
    assert column(text, "community") == "abcdefgh abcdefgh"
    assert column(text, "similarity") == "0.931 0.931"


def test_the_least_telling_columns_go_first() -> None:
    headings = [shown(LEARNERS[0], width=width).split("─")[0].split() for width in (80, 110, 200)]
    assert "id" in headings[0]
    assert "faults" not in headings[0]
    assert {"round", "circle"} <= {*headings[1]}
    assert not {"role", "norm", "faults"} & {*headings[1]}
    assert {"role", "norm", "faults"} <= {*headings[2]}


def test_in_a_pipe_each_peer_has_one_whole_line(capsys) -> None:
    report._print_peers(LEARNERS)
    lines = capsys.readouterr().out.splitlines()
    for name, reason in REASONS.items():
        (line,) = [line for line in lines if name in line]
        assert f" {reason} " in line
        assert "abcdefgh" in line
        assert " 0.931 " in line
        assert line.rstrip().endswith("0"), "faults, the last column"


def test_a_terminal_is_filled_and_not_more(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setitem(os.environ, "COLUMNS", "90")
    report._print_peers(LEARNERS)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= 90
    assert REASONS["hare"] in column(out, "last chosen because")


def test_what_is_known_of_similarity_is_shown() -> None:
    similar = row("hare", community="12D3KooWabcdefgh", similarity=0.9312, reason="not met for 40 rounds")
    text = shown(row("fox"), similar)
    assert "abcdefgh" in text
    assert "0.931" in text
    assert "not met for 40 rounds" in text
    assert "last chosen because" in text


def test_nothing_is_shown_before_anything_is_known() -> None:
    assert "last chosen" not in shown(row("fox"))


def test_reasons_cannot_steer_the_terminal() -> None:
    assert "\x1b[2J" not in shown(row("hare", similarity=0.5, reason="bridge to \x1b[2Jcommunity"))
