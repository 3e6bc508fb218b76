"""Text: windows of bytes from a file or a directory, a model that learns them, and what it says."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pnode.tasks.corpus import read_corpus
from p2pnode.tasks.find import load_task
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


class TestCorpus:
    def test_windows_cover_the_text_and_the_end_is_held_out(self, tmp_path):
        raw = np.frombuffer(book(tmp_path).read_bytes(), np.uint8)
        corpus = read_corpus(str(tmp_path / "book.txt"), 16)
        windows = (len(raw) - 1) // 16
        assert len(corpus.train) + len(corpus.test) == windows and len(corpus.test) == windows // 20
        both = np.concatenate([corpus.train, corpus.test])
        assert np.array_equal(both[:, :-1].ravel(), raw[: windows * 16])
        assert np.array_equal(both[:-1, -1], both[1:, 0])

    def test_one_plain_file_stays_on_disk(self, tmp_path):
        base: np.ndarray | None = read_corpus(str(book(tmp_path)), 16).train
        while base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap)

    def test_a_directory_is_all_its_text_files_in_order(self, tmp_path):
        book(tmp_path, 50, "b/two.txt")
        book(tmp_path, 50, "a.txt")
        (tmp_path / "c.md.gz").write_bytes(gzip.compress(SENTENCE * 50))
        (tmp_path / "picture.bin").write_bytes(bytes(5000))
        (tmp_path / ".hidden").write_bytes(SENTENCE * 50)
        (tmp_path / "short.txt").write_bytes(b"short")
        corpus = read_corpus(str(tmp_path), 16)
        assert corpus.files == 3
        assert np.bincount(corpus.train_file).tolist() == [133, 133, 133]
        for number in range(3):
            first = corpus.train[np.flatnonzero(corpus.train_file == number)[0]]
            assert bytes(first[:-1]) == SENTENCE[:16]
        assert len(corpus.train) == 399 and len(corpus.test) == 21

    def test_a_little_text_still_has_something_to_test_on(self, tmp_path):
        path = tmp_path / "small.txt"
        path.write_bytes(SENTENCE[:33])
        corpus = read_corpus(str(path), 16)
        assert (len(corpus.train), len(corpus.test)) == (1, 1)

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda path: None, "neither a file nor a directory"),
            (lambda path: path.mkdir(), "has no text files"),
            (lambda path: path.write_bytes(b""), "too little text"),
            (lambda path: path.write_bytes(b"x" * 32), "too little text"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path, make, said):
        make(tmp_path / "place")
        with pytest.raises(UsageError, match=said):
            read_corpus(str(tmp_path / "place"), 16)


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

    def test_it_learns_and_speaks(self, tmp_path):
        task = load_task("text", TINY, str(book(tmp_path)))
        assert isinstance(task, Text)
        model_host = ModelHost(task)
        one = Trainer(model_host)
        before = one.evaluate(model_host.genesis)
        weights = one.steps(model_host.genesis, 250).weights
        after = one.evaluate(weights)
        assert before.loss > math.log(100) and after.loss < 1.2 and after.accuracy is None
        model_host.put(weights)
        said = task.sample(model_host.model.eval(), "the quick", 40, torch.Generator().manual_seed(1), temperature=0.2)
        assert said.startswith("the quick") and len(said) == 49
        assert said == task.sample(model_host.model, "the quick", 40, torch.Generator().manual_seed(1), temperature=0.2)
        assert any(word in said for word in ("brown", "fox", "jumps", "over", "lazy"))

    def test_the_probe_fits_the_model(self, tmp_path):
        task = load_task("text", TINY, str(book(tmp_path)))
        probe = task.probe()["x"]
        assert probe.shape == (128, 16) and torch.equal(probe, load_task("text", TINY).probe()["x"])
        assert build_model(task, 0)(probe).shape == (*probe.shape, 256)

    def test_files_are_labels_where_there_are_several(self, tmp_path):
        single = load_task("text", TINY, str(book(tmp_path / "one")))
        assert single.labels(single.data()) is None
        for name in ("a.txt", "b.txt"):
            book(tmp_path / "two", name=name)
        double = load_task("text", TINY, str(tmp_path / "two"))
        labels = double.labels(double.data())
        assert labels is not None and labels.unique().tolist() == [0, 1]
