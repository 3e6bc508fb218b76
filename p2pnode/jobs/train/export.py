"""Weights as a safetensors file: each parameter under its name, with what the run was in the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...compression.weights import Floats, WeightLayout
from ...merging.deltaset.policy import DeltaSetPolicy
from ...merging.policy import Policy
from ...storage.files import write_whole

FILE_MODE = 0o644


def exported(policy: Policy, ema: bool) -> Floats:
    """What this node has to give: the shared weights, or their average over rounds."""
    return policy.readout() if ema or not isinstance(policy, DeltaSetPolicy) else policy.weights()


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
