"""Baselines of `benchmarks.codec`: hivemind's codecs, the best levels there are, residuals of real training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.proto.runtime_pb2 import CompressionType

from benchmarks.common import Figures, progress
from p2pnode.compression.residual import make_delta, record
from p2pnode.compression.weights import Floats, Units, layout_of, read_weights
from p2pnode.tasks.fashion_mnist import FashionMnist
from p2pnode.wire.errors import LocalProblem

CODECS = {"float16": CompressionType.FLOAT16, "uniform8": CompressionType.UNIFORM_8BIT}
Timer = Callable[[int, Mapping[str, Callable[[], object]]], dict[str, float]]


def hivemind_codecs(values: Floats, copying: float, times: int, best_of: Timer) -> Figures:
    """Speed, bits per parameter and squared error of the dense codecs."""
    figures = Figures()
    vector = torch.from_numpy(values)
    for name, kind in CODECS.items():
        packed = serialize_torch_tensor(vector, kind)
        works = {
            "encode": partial(serialize_torch_tensor, vector, kind),
            "decode": partial(deserialize_torch_tensor, packed),
        }
        seconds = best_of(times, works)
        error = (deserialize_torch_tensor(packed) - vector).square().sum() / vector.square().sum()
        figures |= {
            f"hivemind_{name}_encode_vs_memcpy": copying / seconds["encode"],
            f"hivemind_{name}_decode_vs_encode": seconds["encode"] / seconds["decode"],
            f"hivemind_{name}_bits_per_parameter": 8 * packed.ByteSize() / len(values),
            f"hivemind_{name}_error": float(error),
        }
    return figures


def lloyd_max(values: Units, count: int, known: npt.NDArray[np.int32]) -> float:
    """The squared error of the best `count` levels that Lloyd's iteration finds; `known` is one of its starts."""
    ordered = np.sort(np.abs(values)).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    evenly = np.arange(count) / count
    starts = [
        ordered[(evenly * len(ordered)).astype(int)],
        ordered[((1 - (1 - evenly) ** 3) * (len(ordered) - 1)).astype(int)],
        np.linspace(ordered[0], ordered[-1], count),
        known.astype(np.float64),
    ]
    return min(_settled(ordered, sums, np.unique(levels)) for levels in starts)


def _settled(ordered: npt.NDArray[np.float64], sums: npt.NDArray[np.float64], levels: npt.NDArray[np.float64]) -> float:
    for _ in range(300):
        borders = np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2)
        cells = np.unique(np.concatenate(([0], borders, [len(ordered)])))
        moved = np.diff(sums[cells]) / np.diff(cells)
        if np.array_equal(moved, levels):
            break
        levels = moved
    nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, ordered)]
    return float(np.square(ordered - nearest).sum())


def trained_residual(rounds: int, hidden: int = 768) -> Units | None:
    """What a node has to send after some rounds of ten steps on half of the classes; None without the data."""
    task = FashionMnist()
    task.hidden = hidden
    try:
        samples = task.data()
    except LocalProblem as problem:
        progress(f"no residual of real training: {problem}")
        return None
    torch.manual_seed(1)
    model, draws = task.model(), torch.Generator().manual_seed(1)
    layout, own = layout_of(model), torch.nonzero(samples["y"] < 5).flatten()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    residual = np.zeros(layout.size, np.int32)
    for number in range(rounds):
        begun = read_weights(model, layout)
        for _ in range(10):
            batch = own[torch.randint(len(own), (32,), generator=draws)]
            loss = torch.nn.functional.cross_entropy(model(samples["x"][batch].float()), samples["y"][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        residual = record(residual, read_weights(model, layout) - begun, 0.98)
        if number < rounds - 1:
            residual = make_delta(residual, layout.size // 100, 2, 1.0)[1]
    return residual
