"""The three examples of docs/tasks.md, "Data larger than memory", learn as they are written there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pnode.simulate import simulate
from p2pnode.tasks.digits import Digits

DOCUMENT = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
SECTION = DOCUMENT.split("## Data larger than memory")[1].split("\n## ")[0]
IMPORTS = """
from pathlib import Path
import numpy as np, torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset
from p2pnode import Task, Tokens
"""


def digits(folder: Path) -> Path:
    """Digits as files, named by their class."""
    for part, samples in (("train", Digits().data()), ("test", Digits().test_data())):
        (folder / part).mkdir()
        for number in range(300):
            picture = samples["x"][number].numpy().astype(np.float32) / 16
            np.save(folder / part / f"{samples['y'][number]}-{number}.npy", picture)
    return folder


def tokens(folder: Path) -> Path:
    """Tokens that follow from each other."""
    start = torch.randint(0, 512, (1,), generator=torch.Generator().manual_seed(1)).item()
    found = np.array([(start + 7 * number) % 512 for number in range(60_000)], np.uint16)
    found.tofile(folder / "train.bin")
    return folder / "train.bin"


@pytest.mark.parametrize(
    ("number", "make", "options", "accuracy", "loss"),
    [(0, digits, {}, 0.6, None), (1, tokens, {"learning_rate": 1.0}, None, 3.0), (2, None, {}, 0.8, None)],
)
def test_an_example_is_learned_by_two_nodes(tmp_path, number, make, options, accuracy, loss):
    blocks = re.findall(r"```python\n(.*?)```", SECTION, re.S)
    assert len(blocks) == 3
    path = tmp_path / "documented.py"
    path.write_text(IMPORTS + blocks[number])
    data = None if make is None else make(tmp_path)
    done = simulate(2, task=str(path), task_options=options, data=data, rounds=15, seed=1)
    assert not done.errors
    if accuracy is not None:
        assert min(done.accuracies()) > accuracy
    else:
        assert done.summary()["test_loss_worst"] < loss  # untrained: 6.2
