"""The list of benchmarks is complete, and what they print becomes a report."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from benchmarks.catalogue import BENCHMARKS, HELPERS
from benchmarks.common import Report, need_fashion_mnist, run, table
from benchmarks.report import report
from p2pnode.wire.errors import UsageError

FOLDER = Path(__file__).parent.parent / "benchmarks"


def test_every_module_with_a_main_function_is_listed():
    runnable = {file.stem for file in FOLDER.glob("*.py") if '__name__ == "__main__"' in file.read_text()}
    listed = [benchmark.name for benchmark in BENCHMARKS]
    assert len(listed) == len(set(listed))
    assert runnable - {"__main__"} == {*listed, *HELPERS}


def test_parts_belong_to_listed_benchmarks():
    names = {benchmark.name for benchmark in BENCHMARKS}
    assert {benchmark.part_of for benchmark in BENCHMARKS} <= {*names, ""}


def test_every_benchmark_explains_how_to_run_it():
    for benchmark in BENCHMARKS:
        text = (FOLDER / f"{benchmark.name}.py").read_text()
        assert re.search(rf"^    python -m {benchmark.module}( |$)", text, re.MULTILINE), benchmark.name


def test_a_missing_data_set_is_one_line_with_the_command_that_installs_it(monkeypatch, tmp_path, capsys):
    def measure(arguments: argparse.Namespace) -> Report:
        need_fashion_mnist()
        return Report()

    monkeypatch.setattr("p2pnode.tasks.fashion_mnist.SYSTEM", tmp_path)
    with pytest.raises(SystemExit) as ended:
        run("shards", measure, argv=[])
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("python -m benchmarks.shards: ") and said.count("\n") == 1
    assert "apt-get install dataset-fashion-mnist" in said


def test_wrong_arguments_end_with_code_2_whoever_notices(capsys):
    def measure(arguments: argparse.Namespace) -> Report:
        raise UsageError("no such scheme")

    for argv in ([], ["--nonsense"]):
        with pytest.raises(SystemExit) as ended:
            run("frontier", measure, argv=argv)
        assert ended.value.code == 2
        assert "python -m benchmarks.frontier: " in capsys.readouterr().err


def test_programs_get_one_json_line_and_people_a_table(capsys):
    def measure(arguments: argparse.Namespace) -> Report:
        return Report({"loss": 0.123456}, [{"scheme": "dense"}])

    run("frontier", measure, argv=["--json", "--quick"])
    line = {"benchmark": "frontier", "quick": True, "loss": 0.123456, "rows": [{"scheme": "dense"}]}
    assert json.loads(capsys.readouterr().out) == line
    run("frontier", measure, argv=[])
    assert capsys.readouterr().out.splitlines()[:2] == ["scheme", " dense"]


def record(name: str, code: int = 0, **output: object) -> dict[str, object]:
    ran = {"date": "2026-11-18T03:00:00+00:00", "seconds": 12.0, "load_before": 0.5, "load_after": 1.5}
    command = f"python -m benchmarks.{name} --json"
    return {**ran, "machine": "a machine", "code": code, "command": command, "output": output, "error": "no disk"}


def test_a_report_prefers_full_runs_and_compares_figures_with_baselines():
    text = report(
        {"network": record("network", call_p50_ms=9.0), "codec": record("codec", bits_per_entry=11.25)},
        {"network": record("network", call_p50_ms=0.9, raw_call_p50_ms=0.75), "codec": record("codec", code=1)},
    )
    assert "| `call_p50_ms` | 0.9 | 0.75 | `raw_call_p50_ms` |" in text
    assert "| `bits_per_entry` | 11.25 |" in text
    assert "Machine: a machine." in text
    assert "2026-11-18 03:00, 12 s, load 0.5 to 1.5." in text
    assert "Not run yet: `swarm`" in text


def test_columns_that_are_the_same_in_all_rows_become_a_sentence():
    rows = [{"scheme": scheme, "peers": 8, "steps": 400} for scheme in ("dense", "deltaset")]
    text = report({"frontier": record("frontier", rows=rows)}, {})
    assert "In all rows: peers 8, steps 400." in text
    assert "| scheme |\n| --- |\n| dense |\n| deltaset |" in text


def test_a_report_says_which_benchmark_did_not_end():
    assert "It did not run to its end: no disk" in report({}, {"codec": record("codec", code=1)})


def test_rows_with_different_columns_share_one_table():
    assert table([{"scheme": "dense", "loss": 0.5}, {"scheme": "deltaset", "gamma": 2}]) == [
        "  scheme  loss  gamma",
        "   dense   0.5       ",
        "deltaset            2",
    ]
    assert table([]) == []


def test_a_report_keeps_what_earlier_runs_measured_where_there_is_nothing_better():
    full, failed = record("codec", size=1.0), record("swarm", code=1)
    short = record("codec", size=2.0) | {"command": "python -m benchmarks.codec --quick --json"}
    before = report({}, {"codec": full, "swarm": failed, "limits": record("limits", lag=4.0)})
    text = report({"codec": short}, {}, before)
    assert text.count("## codec") == text.count("## limits") == 1
    assert "| `size` | 1 |" in text and "| `lag` | 4 |" in text
    assert "did not run to its end" not in text and text.count("Not run yet: ") == 1
    assert "| `size` | 3 |" in report({}, {"codec": record("codec", size=3.0)}, text)
    assert report({}, {}, text) == text
