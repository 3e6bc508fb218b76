"""`generate`: from an exported file without a node, from a running node in pieces, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from p2pnode.cli import commands
from p2pnode.cli.commands import generate
from p2pnode.node.control import NotRunning
from p2pnode.storage.state_file import pack_state
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.find import load_task
from p2pnode.tasks.task import Task
from p2pnode.training.host import build_model
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem, UsageError

SMALL = {"width": 16, "layers": 1, "heads": 2, "context": 16}
TOKENIZER = json.dumps(
    {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1, "two": 2, "three": 3}, "unk_token": "[UNK]"},
    }
)  # fmt: skip


def exported(path: Path, made: Task, **changes: str) -> str:
    """A file as `export` writes it."""
    facts = {"task": made.name, "task_options": json.dumps(made.options), **made.export_facts(), **changes}
    path.write_bytes(pack_state(path.suffix, build_model(made, 1).state_dict(), facts))
    return str(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_an_exported_file_is_enough(tmp_path, capsys, suffix):
    file = exported(tmp_path / f"model{suffix}", load_task("gpt", SMALL))
    request = ControlRequest("generate", prompt="once upon", length=40, seed=3)
    generate(tmp_path, file, request)
    first = capsys.readouterr().out
    assert first.startswith("once upon") and first.endswith("\n") and "\x1b" not in first
    generate(tmp_path, file, request)
    assert capsys.readouterr().out == first


def test_the_tokenizer_travels_in_the_file(tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "tokenizer.json").write_text(TOKENIZER)
    (tmp_path / "texts" / "a.txt").write_text("one two three " * 50)
    task = load_task("gpt", SMALL, str(tmp_path / "texts"))
    generate(tmp_path, exported(tmp_path / "m.safetensors", task), ControlRequest("generate", prompt="one", length=9))
    written = capsys.readouterr().out.removeprefix("one")
    for word in ("[UNK]", "one", "two", "three"):
        written = written.replace(word, "")
    assert not written.strip(), "only words of the vocabulary"


def test_a_running_node_is_asked_piece_by_piece(tmp_path, capsys, monkeypatch):
    asked = []
    answers = [
        ControlAnswer(said=" a", generation="7"),
        ControlAnswer(said=" time\x1b[2J", generation="7"),
        ControlAnswer(said="."),
    ]

    def ask(data_dir: Path, request: ControlRequest, timeout: float) -> ControlAnswer:
        asked.append(request)
        return answers[len(asked) - 1]

    monkeypatch.setattr(commands, "ask", ask)
    generate(tmp_path, "", ControlRequest("generate", prompt="once upon", job="main", seed=1))
    assert capsys.readouterr().out == "once upon a time·[2J.\n", "signs that steer a terminal are not printed"
    assert [(request.prompt, request.generation, request.job) for request in asked] == [
        ("once upon", "", "main"), ("", "7", "main"), ("", "7", "main"),
    ]  # fmt: skip


def test_what_cannot_be_done_is_one_line_and_nothing_is_printed(tmp_path, capsys):
    task = load_task("gpt", SMALL)
    wrong: list[tuple[str, str, type[Exception], str]] = [
        ("", "x", NotRunning, "no node is running .* exported file with --model"),
        (str(tmp_path / "none.safetensors"), "x", LocalProblem, "cannot read"),
        (str(tmp_path / "none.txt"), "x", UsageError, "must end in"),
        (exported(tmp_path / "digits.pt", Digits()), "x", UsageError, "task digits generates no text"),
        (exported(tmp_path / "a.pt", task), "x" * 17, UsageError, "17 tokens"),
        (exported(tmp_path / "b.pt", task), "x" * 40_000, UsageError, "shorten it"),
        (exported(tmp_path / "c.pt", task, task="mine"), "x", UsageError, "not installed here"),
        (exported(tmp_path / "d.pt", task, task_options='{"width": 32}'), "x", LocalProblem, "does not fit the task"),
        (exported(tmp_path / "e.pt", task, task_options="{"), "x", LocalProblem, "does not fit the task"),
    ]
    for file, prompt, kind, said in wrong:
        with pytest.raises(kind, match=said):
            generate(tmp_path, file, ControlRequest("generate", prompt=prompt))
    assert capsys.readouterr().out == ""
