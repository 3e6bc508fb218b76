"""Scalars for TensorBoard: each round once, only what is known; and one clear line where it is not installed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from p2pnode.cli.start import run_node
from p2pnode.config.options import Options, OutputOptions
from p2pnode.watch import tensorboard
from p2pnode.watch.tensorboard import FACTS, Scalars, check_installed
from p2pnode.wire.errors import UsageError
from tests.watch.test_terminal import LEARNING, MACHINE, status


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
        scalars.note(status(learning=LEARNING, machine=MACHINE))
    assert {name for name, _, _ in written.rows} == set(FACTS)
    assert len(written.rows) == len(FACTS)
    assert ("accuracy", LEARNING.accuracy, LEARNING.rounds) in written.rows
    scalars.note(status(learning=replace(LEARNING, rounds=13, accuracy=None, loss=math.nan)))
    newest = {name for name, _, round_ in written.rows if round_ == 13}
    assert "accuracy" not in newest and "bytes/sent" in newest and "machine/cpu" not in newest


def test_without_the_package_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        check_installed()


def test_the_door_says_so_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        run_node(Options(data_dir=tmp_path / "node", output=OutputOptions(tensorboard=tmp_path / "curves")))
    assert list(tmp_path.iterdir()) == []
