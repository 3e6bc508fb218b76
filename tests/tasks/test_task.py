"""Tasks: options, defaults, and how one is found; a slip ends in one line that names it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from p2pnode.tasks.digits import Digits
from p2pnode.tasks.find import installed_task, load_task
from p2pnode.tasks.gpt import Gpt
from p2pnode.tasks.names import BUILT_IN
from p2pnode.tasks.task import Task, length, option_defaults, rows
from p2pnode.wire.errors import TaskProblem, UsageError

TASK = """
from torch import nn
import torch
from p2pnode import Task

class {name}(Task):
    def model(self): return nn.Linear(2, 2)
    def data(self): return {{"x": torch.zeros(4, 2), "y": torch.zeros(4).long()}}
    test_data = data
"""


class Classes(Task):
    deep = False
    width = 3
    scale = 1.5
    word = "a"
    _hidden = 7

    def test_data(self):
        return {"x": torch.eye(3), "y": torch.tensor([0, 1, 0])}


def file(tmp_path: Path, name: str = "Mine", extra: str = "") -> Path:
    path = tmp_path / f"{name.lower()}_task.py"
    path.write_text(TASK.format(name=name) + extra)
    return path


class TestOptions:
    def test_public_attributes_are_options_of_their_own_kind(self):
        task = Classes(deep="yes", width="8", scale="2", word="b")
        assert (task.deep, task.width, task.scale, task.word) == (True, 8, 2.0, "b")
        assert task.name == "classes"
        assert "_hidden" not in option_defaults(Classes) and "name" not in option_defaults(Classes)

    def test_only_what_differs_belongs_to_the_run(self):
        assert Classes().options == {}
        assert Classes(width=3, scale=2.5).options == {"scale": 2.5}

    def test_where_the_data_are_is_the_nodes_own_business(self):
        assert load_task("gpt", {"width": 64}, "/somewhere").options == {"width": 64}

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"widht": 3}, "did you mean 'width'?"),
            ({"width": "three"}, "a whole number"),
            ({"width": 2.5}, "a whole number"),
            ({"width": True}, "a whole number"),
            ({"width": 10**30}, "a whole number"),
            ({"width": "1e400"}, "a whole number"),
            ({"scale": "nan"}, "a number"),
            ({"scale": "much"}, "a number"),
            ({"deep": "perhaps"}, "true or false"),
            ({"model": "x"}, "no option 'model'"),
        ],
    )
    def test_a_wrong_option_is_named(self, options, said):
        with pytest.raises(UsageError, match="task classes") as caught:
            Classes(**options)
        assert said in str(caught.value)


class TestDefaults:
    def test_evaluation_counts_right_answers_and_takes_the_mean_loss_over_batches(self):
        model = nn.Identity()
        whole, batched = Classes(), Classes(evaluation_batch=2)
        one, other = (task.evaluate(model, task.test_data()) for task in (whole, batched))
        assert one.accuracy == other.accuracy == pytest.approx(2 / 3)
        assert one.loss == pytest.approx(other.loss)
        assert one.samples == other.samples == 3
        assert not model._forward_hooks

    def test_no_accuracy_without_classes(self):
        class Numbers(Task):
            def loss(self, model, batch):
                return ((model(batch["x"]) - batch["y"]) ** 2).mean()

        found = Numbers().evaluate(nn.Identity(), {"x": torch.ones(4, 1), "y": torch.zeros(4, 1)})
        assert (found.loss, found.accuracy) == (1.0, None)

    def test_confidence_is_the_probability_of_the_label_or_the_mean_likelihood_of_a_token(self):
        task, outputs, labels = Classes(), torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
        found = task.confidence(task.losses(nn.Identity(), {"x": outputs, "y": labels}), {})
        assert torch.allclose(found, outputs.softmax(1)[torch.arange(6), labels])
        outputs, labels = torch.randn(2, 7, 5), torch.randint(0, 7, (2, 5))
        found = task.confidence(task.losses(nn.Identity(), {"x": outputs, "y": labels}), {})
        assert torch.allclose(found, outputs.log_softmax(1).gather(1, labels[:, None])[:, 0].mean(1).exp())

    def test_the_probe_is_of_the_test_data(self):
        assert torch.equal(Digits().probe()["x"], Digits().test_data()["x"][:128])

    def test_what_a_task_does_not_say_is_named(self):
        with pytest.raises(NotImplementedError, match=r"task task has no model\(\)"):
            Task().model()

    def test_columns_must_agree(self):
        with pytest.raises(ValueError, match="x 2, y 3"):
            length({"x": torch.zeros(2), "y": torch.zeros(3)})
        assert length({}) == 0

    def test_slices_share_memory(self):
        samples = {"x": torch.zeros(4)}
        rows(samples, slice(1, 3))["x"][0] = 5
        assert samples["x"][1] == 5


class TestFinding:
    @pytest.mark.parametrize("name", BUILT_IN)
    def test_what_is_built_in_is_found_by_name(self, name):
        assert load_task(name).name == installed_task(name).name == name

    def test_a_file_with_one_task_needs_no_class_name(self, tmp_path):
        assert load_task(str(file(tmp_path))).name == "mine"

    def test_a_file_with_several_does(self, tmp_path):
        path = file(tmp_path, extra="class Other(Mine): pass\n")
        with pytest.raises(UsageError, match="several tasks \\(Mine, Other\\); name one as"):
            load_task(str(path))
        assert load_task(f"{path}:Other").name == "other"

    def test_a_file_may_import_its_neighbours(self, tmp_path):
        (tmp_path / "neighbour_of_task.py").write_text("WIDTH = 3\n")
        path = file(tmp_path, extra="from neighbour_of_task import WIDTH\n")
        assert load_task(str(path)).name == "mine"
        assert str(tmp_path) not in sys.path

    def test_a_module_of_the_current_directory(self, tmp_path, monkeypatch):
        file(tmp_path, "Here")
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
        monkeypatch.chdir(tmp_path)
        assert load_task("here_task:Here").name == "here"

    def test_an_entry_point(self, monkeypatch):
        entry = importlib.metadata.EntryPoint("fancy", "p2pnode.tasks.digits:Digits", "p2pnode.tasks")
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
        assert isinstance(load_task("fancy"), Digits)
        assert isinstance(installed_task("fancy"), Digits)

    def test_options_and_source_reach_the_task(self):
        digits, text = load_task("digits", {"hidden": "16"}), load_task("gpt", source="book.txt")
        assert isinstance(digits, Digits) and digits.hidden == 16
        assert isinstance(text, Gpt) and text.source == "book.txt"

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ("dgits", "did you mean 'digits'?"),
            ("nowhere.py", "no file 'nowhere.py'"),
            ("no.such.module:Mine", "no module 'no.such.module'"),
            ("p2pnode.tasks.digits:Digit", "did you mean 'Digits'?"),
            ("p2pnode.wire.errors:UsageError", "has no task 'UsageError'"),
            ("a b:c", "no task 'a b:c'"),
            ("", "no task ''"),
        ],
    )
    def test_a_slip_ends_in_one_line(self, spec, said):
        with pytest.raises(UsageError) as caught:
            load_task(spec)
        assert said in str(caught.value) and "\n" not in str(caught.value)

    def test_data_for_a_task_that_carries_its_own(self):
        with pytest.raises(UsageError, match="digits carries its own data"):
            load_task("digits", source="/tmp")

    @pytest.mark.parametrize(
        ("text", "kind", "said"),
        [
            ("import nothing_of_this_name", TaskProblem, "needs the module 'nothing_of_this_name'"),
            ("1 / 0", TaskProblem, "ZeroDivisionError: division by zero ({path}:1)"),
            ("\ndef broken(:", TaskProblem, "SyntaxError: invalid syntax ({path}:2)"),
            ("import sys\nsys.exit(3)", TaskProblem, "SystemExit: 3 ({path}:2)"),
            ("x = 1", UsageError, "no task"),
        ],
    )
    def test_a_file_that_does_not_load_says_why(self, tmp_path, text, kind, said):
        path = tmp_path / "broken_task.py"
        path.write_text(text)
        with pytest.raises(kind) as caught:
            load_task(str(path))
        assert said.format(path=path) in str(caught.value)

    def test_a_misspelt_file_is_suggested(self, tmp_path):
        (tmp_path / "my_task.py").write_text("")
        with pytest.raises(UsageError, match=r"there is no file .*; did you mean 'my_task.py'\?"):
            load_task(str(tmp_path / "mytask.py"))


class TestForeignNames:
    @pytest.mark.parametrize("name", ["p2pnode.tasks.digits:Digits", "antigravity:x", "./mine.py", "os"])
    def test_nothing_is_imported_because_a_manifest_names_it(self, name):
        before = set(sys.modules)
        with pytest.raises(UsageError, match="is not installed here"):
            installed_task(name)
        assert "antigravity" not in set(sys.modules) - before

    @pytest.mark.parametrize("load", [load_task, installed_task])
    def test_a_run_cannot_choose_what_this_node_reads(self, load):
        with pytest.raises(UsageError, match="source is not an option of a run; use --data"):
            load("gpt", {"source": "/etc"})
