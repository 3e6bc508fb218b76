"""Scalars for TensorBoard: each round once, only what is known; and one clear line where it is not installed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from p2pnode.cli.start import run_node
from p2pnode.config.options import Options, OutputOptions
from p2pnode.watch import tensorboard
from p2pnode.watch.tensorboard import JOB_FACTS, NODE_FACTS, Scalars, check_installed
from p2pnode.wire.errors import UsageError
from tests.watch.test_terminal import MACHINE, TRAINING, status, training


class Written:
    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.rows.append((tag, scalar_value, global_step))

    def close(self) -> None: ...


def test_each_round_is_written_once_with_all_that_is_known() -> None:
    written = Written()
    scalars = Scalars(written)
    scalars.note(status())
    assert written.rows == []
    for _ in range(3):
        scalars.note(status(jobs=training(), machine=MACHINE))
    assert {name for name, _, _ in written.rows} == {*JOB_FACTS, *NODE_FACTS}
    assert len(written.rows) == len(JOB_FACTS) + len(NODE_FACTS)
    assert ("learning/test accuracy", 0.958, 12) in written.rows
    scalars.note(status(jobs=training(round=13, accuracy=None, loss=math.nan)))
    latest = {name for name, _, round_ in written.rows if round_ == 13}
    assert "learning/test accuracy" not in latest
    assert "node/sent" in latest and "node/processor in use" not in latest


def test_the_tags_of_several_jobs_begin_with_their_names() -> None:
    written = Written()
    Scalars(written).note(status(jobs={"small": TRAINING, "wide": TRAINING}))
    tags = [tag for tag, _, _ in written.rows]
    assert {"small/learning/test accuracy", "wide/learning/test accuracy"} <= set(tags)
    assert tags.count("node/sent") == 1


def test_without_the_package_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        check_installed()


def test_the_command_line_says_so_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        run_node(Options(data_dir=tmp_path / "node", output=OutputOptions(tensorboard=tmp_path / "curves")))
    assert list(tmp_path.iterdir()) == []
