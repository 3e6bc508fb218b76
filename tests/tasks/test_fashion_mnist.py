"""Fashion-MNIST from IDX files the test makes: plain or gzipped, and what is wrong with them in one line."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pnode.tasks import fashion_mnist
from p2pnode.tasks.fashion_mnist import read_idx
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem, UsageError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(directory: Path, packed: bool = False, separator: str = "-", train: int = 60, test: int = 20) -> None:
    rng = np.random.default_rng(1)
    for part, count in (("train", train), ("t10k", test)):
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            name = f"{part}-{kind}-ubyte".replace("-idx", f"{separator}idx")
            raw = idx(array)
            path = directory / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(raw) if packed else raw)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("separator", ["-", "."])
def test_files_are_read_plain_or_gzipped(tmp_path, packed, separator):
    write(tmp_path, packed, separator)
    task = load_task("fashion-mnist", source=str(tmp_path))
    train, test = task.data(), task.test_data()
    assert train["x"].shape == (60, 28, 28) and train["x"].dtype == torch.uint8
    assert test["y"].shape == (20,) and test["y"].dtype == torch.int64
    rng = np.random.default_rng(1)
    assert train["y"].tolist() == rng.integers(0, 10, 60, dtype=np.uint8).tolist()


def test_plain_files_stay_on_disk(tmp_path):
    write(tmp_path)
    found = read_idx(tmp_path / "train-images-idx3-ubyte")
    base: np.ndarray | None = found
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_it_learns_its_own_samples_by_heart(tmp_path):
    write(tmp_path)
    model_host = ModelHost(load_task("fashion-mnist", source=str(tmp_path)))
    assert model_host.layout.size == 235_146
    one = Trainer(model_host)
    weights = one.steps(model_host.genesis, 60).weights
    assert one.evaluate(weights, model_host.data).loss < one.evaluate(model_host.genesis, model_host.data).loss / 2


def test_missing_files_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "SYSTEM", tmp_path / "system")
    fashion_mnist._read.cache_clear()
    for source in (None, str(tmp_path)):
        with pytest.raises(LocalProblem) as caught:
            load_task("fashion-mnist", source=source).data()
        words = str(caught.value)
        assert "train-images-idx3-ubyte" in words and "apt install dataset-fashion-mnist" in words and "--data" in words
    fashion_mnist._read.cache_clear()


def test_a_directory_that_is_none(tmp_path):
    with pytest.raises(UsageError, match="is not a directory"):
        load_task("fashion-mnist", source=str(tmp_path / "nowhere")).data()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read|not an IDX file"),
        (b"\x00\x00", "not an IDX file"),
        (b"hello there, this is text", "not an IDX file"),
        (idx(np.zeros((60, 28, 28), np.uint8))[:-5], "is incomplete"),
        (idx(np.zeros((60, 28, 28), np.uint8)) + b"x", "is incomplete"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "is incomplete"),
        (idx(np.zeros((60, 8, 8), np.uint8)), "do not fit together"),
        (idx(np.zeros((50, 28, 28), np.uint8)), "do not fit together"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_named(tmp_path, content, said, packed):
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.unlink()
    (path.with_name(f"{path.name}.gz") if packed else path).write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(LocalProblem, match=said) as caught:
        load_task("fashion-mnist", source=str(tmp_path)).data()
    assert path.name in str(caught.value)


def test_gzip_that_is_cut_off(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((60, 28, 28), np.uint8)))[:-9])
    with pytest.raises(LocalProblem, match="cannot be read"):
        read_idx(path)
