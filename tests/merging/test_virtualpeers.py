"""The loop the frontier is measured with: the same seed, the same figures; and bytes only where somebody speaks."""

from __future__ import annotations

import pytest

from benchmarks.frontier import SCHEMES, run_scheme
from benchmarks.virtualpeers import Plan
from p2pnode.config.split import parse_split
from p2pnode.shards.split import split_rows
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost


def run(name: str, seed: int = 1) -> list[dict[str, float | int | str | None]]:
    model_host = ModelHost(load_task("digits"), seed=0)
    parts = split_rows(model_host.labels, model_host.samples, 4, parse_split("dirichlet:0.3"), seed)
    return run_scheme(SCHEMES[name], model_host, parts, Plan(60, seed=seed), model_host.genesis)


@pytest.mark.parametrize("name", ["dense", "deltaset", "deltaset-0.5", "gossip", "diloco", "all-reduce"])
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    first = run(name)
    assert first == run(name)
    assert all(int(node["bytes"] or 0) > 0 for node in first)


def test_alone_nobody_receives_anything() -> None:
    assert all(node["bytes"] == 0 for node in run("alone"))
