"""Events are a documented list: what is said is in it, what is in it can be said, and the docs tell it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from p2pnode.runtime.events import KINDS, SHOWN, Events, Kind
from p2pnode.runtime.seams import SystemClock

ROOT = Path(__file__).parent.parent.parent
DOCS = (ROOT / "docs" / "events.md").read_text()
FILES = [path for path in (ROOT / "p2pnode").rglob("*.py") if path.name != "event_kinds.py"]


def words() -> set[str]:
    """Every text constant of the package."""
    trees = (ast.parse(path.read_text()) for path in FILES)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


def said() -> set[str]:
    """The first argument of each `say` that is written out."""
    calls = (node for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("say", "_warn"))
    firsts = (call.args[0] for call in named if call.args)
    return {first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)}


def test_the_type_and_the_table_have_the_same_kinds() -> None:
    assert set(get_args(Kind)) == set(KINDS)
    assert not set(KINDS) & set(SHOWN)


def test_what_is_said_is_in_the_list_and_what_is_listed_can_be_said() -> None:
    assert len(said()) > 20
    assert said() <= set(KINDS)
    assert set(KINDS) | set(SHOWN) <= words()


@pytest.mark.parametrize(("kind", "help"), [*KINDS.items(), *SHOWN.items()])
def test_each_kind_has_its_line_in_the_docs(kind: str, help: str) -> None:
    assert f"| `{kind}` | {help} |\n" in DOCS


def test_the_docs_list_nothing_else() -> None:
    rows = [line for line in DOCS.splitlines() if line.startswith("| `")]
    assert len(rows) == len(KINDS) + len(SHOWN)


def test_warnings_stay_to_be_seen_when_newer_events_came() -> None:
    events = Events(SystemClock())
    events.say("clock", "off", warning=True)
    for number in range(300):
        events.say("progress", str(number))
    assert [event.text for event in events.latest(2)] == ["off", "298", "299"]
    events.say("disk", "full", warning=True)
    assert [event.text for event in events.latest(2)] == ["off", "299", "full"], "each once"
