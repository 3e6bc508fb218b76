"""Text: windows of bytes from a file or a directory, a model that learns them, and what it says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from p2pnode.tasks.data import as_data
from p2pnode.tasks.find import load_task
from p2pnode.tasks.task import labels_of
from p2pnode.tasks.text import Text
from p2pnode.training.host import ModelHost, build_model
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import UsageError

SENTENCE = b"the quick brown fox jumps over the lazy dog. "
TINY = {"width": 16, "layers": 1, "heads": 2, "context": 16, "batch_size": 8, "warmup": 1}


def book(tmp_path: Path, times: int = 100, name: str = "book.txt") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SENTENCE * times)
    return path


class TestText:
    def test_without_a_place_to_read_it_says_so(self):
        with pytest.raises(UsageError, match="--data FILE"):
            load_task("text").data()

    def test_sizes_are_options(self):
        small, large = (
            sum(part.numel() for part in build_model(load_task("text", options), 0).parameters())
            for options in ({}, {"width": 256, "layers": 7})
        )
        assert 280_000 < small < 360_000
        assert large > 5_000_000
        with pytest.raises(UsageError, match="multiple of heads"):
            load_task("text", {"width": 30}).model()
        with pytest.raises(UsageError, match="layers are too many"):
            load_task("text", {"layers": 10**9}).model()

    def test_no_byte_sees_the_bytes_after_it(self):
        model = build_model(load_task("text", TINY), 0).eval()
        one = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(1))
        other = one.clone()
        other[0, 10:] = 7
        with torch.no_grad():
            torch.testing.assert_close(model(one)[0, :10], model(other)[0, :10])
            assert not torch.allclose(model(one)[0, 10:], model(other)[0, 10:])

    def test_it_learns(self, tmp_path):
        task = load_task("text", TINY, str(book(tmp_path)))
        assert isinstance(task, Text)
        model_host = ModelHost(task)
        one = Trainer(model_host)
        before = one.evaluate(model_host.genesis)
        weights = one.steps(model_host.genesis, 250).weights
        after = one.evaluate(weights)
        assert before.loss > math.log(100) and after.loss < 1.2 and after.accuracy is None

    def test_the_probe_fits_the_model(self, tmp_path):
        task = load_task("text", TINY, str(book(tmp_path)))
        probe = task.probe()["x"]
        assert probe.shape == (128, 16) and torch.equal(probe, load_task("text", TINY).probe()["x"])
        assert build_model(task, 0)(probe).shape == (*probe.shape, 256)

    def test_files_are_labels_where_there_are_several(self, tmp_path):
        single = load_task("text", TINY, str(book(tmp_path / "one")))
        assert labels_of(single, as_data(single.data())) is None
        for name in ("a.txt", "b.txt"):
            book(tmp_path / "two", name=name)
        double = load_task("text", TINY, str(tmp_path / "two"))
        labels = labels_of(double, as_data(double.data()))
        assert labels is not None and sorted(set(labels.tolist())) == [0, 1]
