"""Every figure that is shown anywhere has one definition, and everything that shows figures takes it from there."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import fields

from p2pnode.cli import reports
from p2pnode.shards.sample_states import NAMES
from p2pnode.watch.dashboard.metrics import JOB_METRICS, METRICS, OBSERVERS, PEERS, WELL_METRIC
from p2pnode.watch.glossary import FIGURES, definition
from p2pnode.watch.tensorboard import JOB_FACTS, NODE_FACTS
from p2pnode.watch.terminal.tables import peers_table
from p2pnode.wire import status as shown
from page.figures import contents, words
from tests.watch.test_terminal import row

# The records of wire.status, by the name that stands before a field where several records have a field of that name.
RECORDS: dict[str, Any] = {
    "train": shown.TrainState, "state": shown.JobState, "job": shown.JobStatus, "details": shown.TrainStatus,
    "peer": shown.PeerState, "relation": shown.Relation,
    "traffic": shown.Traffic, "exchange": shown.ExchangeRow, "merge": shown.MergeRow,
    "visit": shown.VisitRow, "shard": shown.ShardRow, "limits": shown.LimitOptions, "machine": shown.Machine,
    "node": shown.NodeStatus,
}  # fmt: skip
MERGE = shown.MergeRow(1, 0.0, (), 1, 1, 1, 0.5, 0.1)
SOURCES = Path(__file__).parents[2] / "page" / "src"


def numbers(record: Any) -> list[str]:
    """The fields of a record that are numbers."""
    hints = get_type_hints(record, include_extras=False)
    names = list(hints) if is_dataclass(record) else [field.name for field in fields(record)]
    kinds = {name: str(hints[name]) for name in names}
    return [name for name, kind in kinds.items() if re.search(r"\b(int|float)\b", kind) and "dict" not in kind]


@pytest.mark.parametrize("name", RECORDS)
def test_every_number_in_status_json_and_in_notebook_rows_is_defined(name: str) -> None:
    for field in numbers(RECORDS[name]):
        assert definition(f"{name}.{field}").meaning


def test_all_records_are_looked_at() -> None:
    """A new record of numbers must be added to RECORDS, or be no figure."""
    others = {"NodeEvent", "Figure", "JobTable"}  # times of events; what other kinds of work define themselves
    found = {
        name for name, made in vars(shown).items() if isinstance(made, type) and hasattr(made, "__struct_fields__")
    }
    counted = {name for name in found - others if numbers(getattr(shown, name))}
    assert counted <= {record.__name__ for record in RECORDS.values()}


def test_labels_are_not_used_for_two_meanings_of_one_place() -> None:
    labels = Counter(found.label for found in FIGURES.values())
    assert {label for label, count in labels.items() if count > 1} == {"reason"}


def test_definitions_are_sentences() -> None:
    for found in FIGURES.values():
        assert found.label and found.meaning.endswith(".") and found.label.strip() == found.label
        assert len(found.meaning) <= 200


def test_metrics_and_tensorboard_use_the_definitions() -> None:
    for metric in (*METRICS, *JOB_METRICS, PEERS, OBSERVERS, WELL_METRIC):
        assert definition(metric.path)
    for tag, path in (*JOB_FACTS.items(), *NODE_FACTS.items()):
        assert tag.endswith(f"/{definition(path).label}")


def test_tables_in_the_terminal_are_headed_by_labels() -> None:
    labels = {found.label for found in FIGURES.values()} | {"peer", "id"}
    peers = (row("fox", community="fox", similarity=0.5, reason="at random"),)
    assert {column.header for column in peers_table(peers, None).columns} <= labels
    plain = {"shard", "model", "job", "from", "after the merge", "how it goes"}  # no figures
    tables = (reports.log_table((MERGE,), {}), reports.shards_table((), {}), reports.jobs_table({}))
    assert {str(column.header) for table in tables for column in table.columns} <= labels | plain


def test_states_of_samples_are_defined() -> None:
    assert all(definition(name).unit == "samples" for name in NAMES)


def test_what_the_page_shows_is_defined() -> None:
    """The page itself fails on a name without a definition; this also finds names that no test makes it show."""
    known = {*FIGURES, *words()}
    page = (SOURCES / "index.html").read_text("utf-8")
    used = set(re.findall(r'data-word="([^"]+)"', page))
    for path in SOURCES.glob("*.js"):
        if path.name in ("widget.js", "glossary.js"):
            continue
        text = path.read_text("utf-8")
        used |= set(re.findall(r'(?:label|defined)\("([^"]+)"\)', text))
        used |= set(re.findall(r'term\("\w+", "([^"]+)"', text))
        used |= set(re.findall(r'^ +\["([^"]+)", ', text, re.MULTILINE))  # rows of columns and of definitions
    assert len(used) > 60 and used <= known, used - known


def test_what_is_made_from_the_table_is_up_to_date() -> None:
    for path, content in contents().items():
        assert path.read_text("utf-8") == content, f"{path.name} is older than its source: make figures"
