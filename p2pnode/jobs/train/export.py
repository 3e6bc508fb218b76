"""Weights as a safetensors file: each parameter under its name, with what the run was in the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...compression.weights import Floats, WeightLayout
from ...merging.policy import Policy
from ...storage.files import write_whole

FILE_MODE = 0o644


def exported(policy: Policy, ema: bool) -> Floats:
    """The weights to export: those that all members share, or their average over rounds where there are none."""
    return policy.readout() if ema or policy.can.entries is None else policy.weights()


def as_safetensors(layout: WeightLayout, weights: Floats, facts: Mapping[str, str]) -> bytes:
    """The file's content. ValueError when the weights are not of this layout."""
    from safetensors.numpy import save

    if weights.shape != (layout.size,):
        raise ValueError(f"{weights.shape} weights do not fit a layout of {layout.size}")
    shapes, places = dict(layout.parameters), layout.layers()
    tensors = {name: np.ascontiguousarray(weights[places[name]].reshape(shape)) for name, shape in shapes.items()}
    return bytes(save(tensors, metadata={"format": "pt", **facts}))


def write_export(file: Path, data: bytes) -> None:
    """Whole or not at all; LocalProblem when it cannot be written there."""
    write_whole(file, data, mode=FILE_MODE, remedy="name another file")
