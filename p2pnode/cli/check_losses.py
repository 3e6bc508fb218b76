"""What `p2pnode check` says of the losses of single samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..tasks.errors import task_errors
from ..tasks.task import Samples
from ..training.host import ModelHost
from .checks import Finding


def losses_findings(model_host: ModelHost, batch: Samples) -> Iterator[Finding]:
    """Where a task tells the loss of each sample: that they make up its loss, and how sure the model is of them."""
    task = model_host.task
    if not model_host.per_sample:
        words = "loss() tells nothing of single samples, so hard and wrong ones are not found"
        yield Finding("losses", "warning", words, "give losses(), one number for each sample, instead of loss()")
        return
    with task_errors(task, "losses"), torch.no_grad():
        with model_host.randomness(0):
            losses = model_host.losses(batch)
        model_host.check_losses(losses, batch)
        with model_host.randomness(0):
            mean = model_host.loss(batch).item()
        shares = task.confidence(losses, batch)
    if not math.isclose(losses.mean().item(), mean, rel_tol=1e-3, abs_tol=1e-6):
        words = f"losses() have a mean of {losses.mean().item():.4g}, and loss() is {mean:.4g}"
        yield Finding("losses", "problem", words, "leave loss() out: it is the mean of losses()")
    elif shares.shape != losses.shape or not bool(((shares >= 0) & (shares <= 1)).all()):
        words = "confidence() must give a number from 0 to 1 for each sample"
        yield Finding("losses", "problem", words, "leave it out unless the loss is no likelihood")
