"""Several paths as one model: their predictions, weighted by the router and by how well each did so far. Pure."""

from __future__ import annotations

import numpy as np

from ...compression.weights import Floats


def best(priors: Floats, count: int) -> Floats:
    """The same log weights (samples, paths) with only the `count` best of each sample, normalised."""
    paths = priors.shape[1]
    if count < paths:
        order = np.argsort(-priors, axis=1, kind="stable")
        kept = np.zeros_like(priors, dtype=bool)
        np.put_along_axis(kept, order[:, :count], True, axis=1)
        priors = np.where(kept, priors, -np.inf).astype(np.float32)
    found: Floats = priors - np.logaddexp.reduce(priors, axis=1, keepdims=True)
    return found


def mixed_losses(losses: Floats, priors: Floats, evidence: bool = True) -> Floats:
    """The losses (samples, pieces) of a mixture, from those of its paths (paths, samples, pieces).

    `priors` are the log weights (samples, paths) before the first piece. With `evidence` the weights of a piece follow
    how well each path predicted the pieces before it.
    """
    logs = -losses.astype(np.float64)
    weights = priors.T[:, :, None].astype(np.float64)
    if evidence:
        weights = weights + np.cumsum(logs, axis=2) - logs
        weights = weights - np.logaddexp.reduce(weights, axis=0, keepdims=True)
    found: Floats = (-np.logaddexp.reduce(weights + logs, axis=0)).astype(np.float32)
    return found
