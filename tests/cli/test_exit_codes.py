"""Exit codes as docs/operating.md lists them: the same for alike faults, whatever the command."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from p2pnode.cli import app, run
from p2pnode.cli.doctor import (
    Finding,
    _clock,
    _reachability,
    _without_daemon,
    examine_and_print,
    finding_line,
)
from p2pnode.config.options import NetworkOptions, Options
from tests.cli.forked import started
from tests.cli.test_early_errors import complaint

BROKEN = {
    "raises.py": ("1 / 0", 1),
    "syntax.py": ("def (:", 1),
    "exits.py": ("import sys; sys.exit(3)", 1),
    "imports.py": ("import nothing_of_this_name", 1),
    "empty.py": ("", 2),
}


def test_the_table_in_the_documents_has_all_codes():
    text = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    table = text.partition("## Exit codes")[2].partition("## ")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", "130"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["digist"], 2),
        (["nowhere.py"], 2),
        (["nowhere:Task"], 2),
        (["digits", "--task-option", "hiden=3"], 2),
        (["digits", "--task-option", "hidden=many"], 2),
        (["digits", "--device", "mps"], 2),
        (["digits", "--data", "/tmp"], 2),
        (["gpt"], 2),
        (["gpt", "--data", "/nowhere"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_check_and_the_node_itself_end_alike(tmp_path, capsys, arguments, code):
    assert run(app, ["check", *arguments], "p2pnode") == code
    said = capsys.readouterr().err
    assert said == complaint(started(tmp_path / "data", "--task", *arguments), code)


@pytest.mark.parametrize("file", BROKEN)
def test_a_broken_file_ends_all_commands_alike(tmp_path, capsys, file):
    content, code = BROKEN[file]
    path = tmp_path / file
    path.write_text(content)
    assert run(app, ["check", str(path)], "p2pnode") == code
    said = capsys.readouterr().err
    assert str(path) in said and said.count("\n") == 1
    assert run(app, ["sim", "--task", str(path), "--peers", "2"], "p2pnode") == code
    assert capsys.readouterr().err == said
    assert said == complaint(started(tmp_path / "data", "--task", str(path)), code)


# ---- doctor ----


@pytest.mark.parametrize(
    ("verdicts", "code"), [(("ok", "warning", "unchecked"), 0), (("ok", "unchecked", "problem"), 1), ((), 0)]
)
def test_only_a_problem_makes_doctor_fail(monkeypatch, capsys, verdicts, code):
    async def examine(options: Options) -> list[Finding]:
        return [Finding(f"check {number}", verdict, "text", "remedy") for number, verdict in enumerate(verdicts)]

    monkeypatch.setattr(sys.modules[Finding.__module__], "examine", examine)
    assert examine_and_print(Options(), as_json=False) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line] == list(verdicts)


def test_what_was_not_checked_is_not_ok():
    clock = _clock([])
    assert clock.verdict == "unchecked" and "not checked" not in clock.text
    assert finding_line(clock).startswith("unchecked clock")
    announced = _reachability(Options(network=NetworkOptions(announce=("/ip4/1.2.3.4/tcp/5",))), ())
    public = _reachability(Options(), ("/ip4/8.8.8.8/tcp/5",))
    assert (announced.verdict, public.verdict) == ("unchecked", "unchecked")
    without = _without_daemon("p2pd does not start", "try again")
    assert [finding.verdict for finding in without] == ["problem", "unchecked", "unchecked", "unchecked"]
