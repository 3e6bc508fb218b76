"""Errors that pass between processes stay what they are."""

from __future__ import annotations

import pickle

from p2pnode.wire.errors import Diverged


def test_a_divergence_passes_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(Diverged("the loss was not finite", 3, 1.5)))
    assert (type(copy), str(copy), copy.steps, copy.loss) == (Diverged, "the loss was not finite", 3, 1.5)
