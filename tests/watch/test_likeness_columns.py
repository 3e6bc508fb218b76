"""Community, similarity and the reason of the last choice are shown where known, and cannot steer a terminal."""

from __future__ import annotations

from rich.console import Console

from p2pnode.watch.tables import peers_table
from tests.watch.test_terminal import row


def shown(*rows) -> str:
    console = Console(width=200, record=True, file=None)
    with console.capture() as captured:
        console.print(peers_table(rows))
    return captured.get()


def test_what_is_known_of_likeness_is_shown() -> None:
    alike = row("hare", community="12D3KooWabcdefgh", similarity=0.9312, chosen="not met for 40 rounds")
    text = shown(row("fox"), alike)
    assert "abcdefgh" in text
    assert "0.931" in text
    assert "not met for 40 rounds" in text
    assert "last chosen because" in text


def test_nothing_is_shown_before_anything_is_known() -> None:
    assert "last chosen" not in shown(row("fox"))


def test_reasons_cannot_steer_the_terminal() -> None:
    assert "\x1b[2J" not in shown(row("hare", similarity=0.5, chosen="bridge to \x1b[2Jcommunity"))
