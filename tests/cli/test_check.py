"""`p2pnode check`: what is wrong with a task, in plain words; exit code 1 when it is not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from p2pnode.cli import app, run
from p2pnode.cli.check import check_task
from p2pnode.tasks.task import Task

OWN = Path(__file__).parents[2] / "examples" / "own_task.py"


class Good(Task):
    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def data(self):
        x = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
        return {"x": x, "y": (x[:, 0] > 0).long()}

    def test_data(self):
        return self.data()


def faulty(**methods: object) -> Task:
    return type("Faulty", (Good,), methods)()


def problems(task: Task) -> dict[str, str]:
    return {found.check: f"{found.text}; {found.remedy}" for found in check_task(task)[0] if found.verdict == "problem"}


def warnings(task: Task) -> dict[str, str]:
    return {found.check: found.text for found in check_task(task)[0] if found.verdict == "warning"}


def raises(self, *arguments):
    raise RuntimeError("a slip")


def counted(values):
    """A method that gives other values at each call."""
    found = iter(values)
    return lambda self, *arguments: next(found)


def test_a_good_task_is_fit_and_its_costs_are_reported():
    findings, facts = check_task(Good())
    assert {found.verdict for found in findings} == {"ok"}
    assert [found.check for found in findings] == [
        "model", "init", "data", "memory", "probe", "loss", "learning", "cost", "delta", "evaluate",
    ]  # fmt: skip
    assert facts["parameters"] == 58 and facts["samples"] == 200
    seconds, size = facts["seconds_per_step"], facts["delta_bytes"]
    assert isinstance(seconds, float) and isinstance(size, int) and seconds > 0 and 0 < size < 200


@pytest.mark.parametrize("method", ["model", "data", "test_data", "loss", "evaluate", "optimizer", "probe"])
def test_a_method_that_raises_is_named(method):
    found = problems(faulty(**{method: raises}))
    assert any(
        f"{method}() raised RuntimeError: a slip" in words and "test_check.py:" in words for words in found.values()
    )
    assert all("\n" not in words for words in found.values())


@pytest.mark.parametrize(
    ("methods", "check", "said"),
    [
        ({"model": lambda self: 3}, "model", "not a torch module"),
        (
            {"model": counted(nn.Linear(4, width) for width in (2, 2, 3, 4, 5))},
            "model",
            "other shapes from call to call",
        ),
        ({"model": lambda self: nn.Linear(1 << 20, 1 << 20)}, "model", "parameters needs about"),
        ({"data": lambda self: {}}, "model", "gave no samples"),
        ({"data": lambda self: {"x": torch.full((9, 4), torch.nan), "y": torch.zeros(9).long()}}, "data", "not finite"),
        ({"data": lambda self: {"x": torch.randn(50, 4), "y": torch.zeros(50).long()}}, "data", "other samples"),
        ({"probe": lambda self: {"x": torch.randn(128, 4)}}, "probe", "other inputs"),
        (
            {"loss": lambda self, model, batch: model(batch["x"])},
            "loss",
            "one number as a tensor, not a tensor of shape",
        ),
        ({"loss": lambda self, model, batch: 0.5}, "loss", "not float"),
        ({"loss": lambda self, model, batch: torch.tensor(1.0)}, "loss", "no gradient"),
        ({"loss": lambda self, model, batch: model(batch["x"]).sum() * torch.nan}, "loss", "the first loss is nan"),
        ({"loss": lambda self, model, batch: model(batch["x"].mul_(2)).square().mean()}, "loss", "changes the batch"),
        (
            {
                "loss": lambda self, model, batch: model(batch["x"]).square().mean(),
                "losses": lambda self, model, batch: model(batch["x"]).square().sum(1),
            },
            "losses",
            "and loss() is",
        ),
        ({"confidence": lambda self, losses, batch: losses + 2}, "losses", "from 0 to 1"),
        ({"learning_rate": 1e9}, "learning", "learning_rate"),
        ({"learning_rate": -0.01}, "learning", "does not fall"),
        ({"evaluate": lambda self, model, samples: 0.5}, "evaluate", "must give an Evaluation"),
    ],
)
def test_what_is_wrong_is_said(methods, check, said):
    assert said in problems(faulty(**methods)).get(check, "nothing found")


def test_initial_weights_must_follow_the_seed():
    found = problems(faulty(model=counted([nn.Linear(4, 2) for _ in range(9)])))
    assert "the same seed gives other initial weights" in found["init"]


@pytest.mark.parametrize(
    ("methods", "check", "said"),
    [
        ({"model": lambda self: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))}, "batchnorm", "not shared"),
        ({"batch_size": 500}, "data", "fewer than one batch"),
        (
            {"loss": lambda self, model, batch: model(batch["x"]).square().mean()},
            "losses",
            "nothing about single samples",
        ),
        ({"probe": lambda self: {"x": torch.zeros(3, 4)}}, "probe", "3 probe inputs"),
    ],
)
def test_what_is_doubtful_is_a_warning(methods, check, said):
    assert said in warnings(faulty(**methods))[check]


def test_parameters_no_gradient_reaches_are_named():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    assert warnings(faulty(model=lambda self: Unused()))["gradient"] == "no gradient reaches spare.weight, spare.bias"


def test_frozen_and_tied_parameters_are_reported():
    def model(self):
        one, two, last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        two.weight = one.weight
        last.bias.requires_grad_(False)
        return nn.Sequential(one, two, last)

    findings, facts = check_task(faulty(model=model))
    assert "2 frozen stay as they are; tied weights count once" in findings[0].text
    assert (facts["frozen"], facts["tied"], facts["parameters"]) == (2, True, 32)


def test_outputs_with_logits_are_understood():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2)

        def forward(self, x):
            return SimpleNamespace(logits=self.body(x))

    findings, _ = check_task(faulty(model=lambda self: Net()))
    assert {found.verdict for found in findings} == {"ok"}
    assert "accuracy" in findings[-1].text


def line_of(method) -> str:
    return f"({__file__}:{method.__code__.co_firstlineno})"


def test_a_problem_points_to_the_line_of_the_method():
    shapes = counted(nn.Linear(4, width) for width in (2, 2, 3, 4, 5))
    assert line_of(shapes) in problems(faulty(model=shapes))["model"]

    def right(self, outputs, batch):
        return float((outputs.argmax(1) == batch["y"]).float().mean())

    said = problems(faulty(right=right))["evaluate"]
    assert "right() must give how many of the 200 samples were right, not 0." in said
    assert line_of(right) in said and "int((outputs.argmax(1)" in said

    def losses(self, model, batch):
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])

    said = problems(faulty(losses=losses))["loss"]
    assert "losses() must give 32 numbers, one for each sample, not one number" in said
    assert line_of(losses) in said and "reduction='none'" in said


def test_one_fault_is_reported_once():
    findings, _ = check_task(faulty(loss=raises))
    assert [found.check for found in findings if found.verdict == "problem"] == ["loss"]
    assert [found.check for found in findings if found.verdict == "unchecked"] == ["learning", "evaluate"]


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"data": lambda self: {"inputs": torch.zeros(64, 4), "y": torch.zeros(64).long()}}, "KeyError: 'x'"),
        ({"model": lambda self: nn.Linear(4, 1)}, "IndexError"),
    ],
)
def test_what_the_default_losses_need_is_explained(methods, words):
    said = problems(faulty(**methods))["loss"]
    start = next(
        number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "class Good" in line
    )
    assert words in said and "cross entropy of model(batch['x'])" in said and "override losses()" in said
    assert f"({__file__}:{start})" in said or "(class Faulty)" in said


def test_why_there_is_no_accuracy_is_said():
    scores = {"losses": lambda self, model, batch: model(batch["x"])[:, :, 0].square().mean(1),
              "model": lambda self: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2)))}  # fmt: skip
    assert "though there are classes" in warnings(faulty(**scores))["accuracy"]
    none = {found.check: found for found in check_task(faulty(labels=lambda self, samples: None))[0]}
    assert none["accuracy"].verdict == "ok" and "right() gives None" in none["accuracy"].text


class TestCommand:
    def test_a_task_of_ones_own_in_15_lines(self, capsys):
        code = run(app, ["check", str(OWN)], "p2pnode")
        out = capsys.readouterr().out
        assert code == 0 and "the loss falls" in out and "parameters" in out
        body = OWN.read_text().partition("class ")[2].splitlines()
        assert len([line for line in body if line.strip()]) <= 15

    def test_json_for_machines(self, capsys):
        assert run(app, ["check", "digits", "--json", "--task-option", "hidden=16"], "p2pnode") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["ok"] and found["task"] == "digits" and found["facts"]["parameters"] == 64 * 16 + 16 + 170

    def test_a_problem_is_exit_code_one(self, tmp_path, capsys):
        path = tmp_path / "bad_task.py"
        path.write_text(OWN.read_text().replace("turn * angle.cos()", "turn * angle.cosine()"))
        assert run(app, ["check", str(path)], "p2pnode") == 1
        out = capsys.readouterr().out
        assert out.startswith("problem") and "data() raised AttributeError" in out and out.count("\n") == 1

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["dgits"], "did you mean 'digits'?"),
            (["digits", "--task-option", "hidden"], "--task-option: 'hidden' is not KEY=VALUE"),
            (["digits", "--task-option", "hiden=3"], "did you mean 'hidden'?"),
            (["digits", "--data", "/tmp"], "carries its own data"),
            (["gpt"], "--data FILE"),
        ],
    )
    def test_a_slip_is_one_line_and_exit_code_two(self, arguments, said, capsys):
        assert run(app, ["check", *arguments], "p2pnode") == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1

    def test_help_does_not_load_torch(self):
        script = "import sys; from p2pnode.cli import app, run; run(app, ['check', '--help'], 'p2pnode');"
        script += "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'hivemind')))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and "TASK" in done.stdout


class TestWhereDataAre:
    """Each kind of data is named, with what it means; an error in a row names its number and place."""

    class Rows(Dataset):
        def __init__(self, bad=None, targets=True):
            self.samples, self.bad = Good().data(), bad
            if targets:
                self.targets = self.samples["y"].tolist()

        def __len__(self):
            return len(self.samples["y"])

        def __getitem__(self, row):
            if row == 100 and self.bad is not None:
                return self.bad(row)
            return self.samples["x"][row], int(self.samples["y"][row])

    class Stream(IterableDataset):
        def __init__(self, random):
            self.random = random

        def __iter__(self):
            for _ in range(100):
                x = torch.randn(4) if self.random else torch.ones(4)
                yield x, int(x[0] > 0)

    def memory(self, task):
        findings, facts = check_task(task)
        return next(found.text for found in findings if found.check == "memory"), facts

    def test_in_memory(self):
        words, facts = self.memory(Good())
        assert words == "in memory, 9.6 kB; shards may travel with --share-data"
        assert facts["data"] == "memory" and facts["data_memory_bytes"] == 9600

    def test_read_by_index(self):
        words, facts = self.memory(faulty(data=lambda task: self.Rows()))
        assert words.startswith("read by index, ") and "4.8 kB in all" in words
        assert words.endswith("shards may travel with --share-data")
        assert facts["data"] == "index" and facts["seconds_per_row"]
        words, _ = self.memory(faulty(data=lambda task: self.Rows(targets=False)))
        assert words.endswith("no labels (`targets`), so no splits by label")

    def test_a_stream(self):
        task = faulty(data=lambda task: self.Stream(random=True))
        words, facts = self.memory(task)
        assert words.startswith("a stream: each node reads it by its own seed; no shards") and facts["samples"] is None
        assert not problems(task) and not warnings(task)

    def test_a_stream_that_gives_everybody_the_same(self):
        task = faulty(data=lambda task: self.Stream(random=False), probe=lambda task: Good().probe())
        assert "every node reads the same samples" in warnings(task)["stream"]

    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            (lambda row: 1 / 0, "row 100 raised ZeroDivisionError: division by zero"),
            (lambda row: (torch.zeros(5), 1), "row 100 has x of shape (5,), and the first one (4,)"),
            (lambda row: (torch.full((4,), torch.nan), 1), "row 100 has values in x that are not finite"),
        ],
    )
    def test_a_bad_row_is_named(self, bad, said):
        words = problems(faulty(data=lambda task: self.Rows(bad)))["data"]
        assert said in words and "test_check.py:" in words
