"""The rules that benchmarks.partners compares: who shares a circle, and which partners a peer chooses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.partners import RULES
from benchmarks.partners_rules import draw_circles
from benchmarks.partners_run import Cell, run_cell
from p2pnode.similarity.fingerprint import similarity_table
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from tests.similarity.views import planted

DRAWINGS = ("random", "similar", "dissimilar", "within", "across")


@given(st.sampled_from(DRAWINGS), st.integers(2, 5), st.integers(0, 99))
def test_circles_are_of_the_planned_size(how, circles, seed) -> None:
    rows = list(planted(3, 8, seed=seed).values())[: 4 * circles]
    names = draw_circles(how, rows, 4, random.Random(seed))
    assert sorted(names.count(name) for name in set(names)) == [4] * circles
    assert names == draw_circles(how, rows, 4, random.Random(seed))


def test_within_and_similar_are_alike_across_and_dissimilar_are_not() -> None:
    rows = list(planted(4, 8).values())
    alike = similarity_table(np.stack(rows))

    def inside(how) -> float:
        names = np.array(draw_circles(how, rows, 8, random.Random(1)))
        return float(alike[names[:, None] == names[None]].mean())

    at_random = inside("random")
    assert min(inside("within"), inside("similar")) > at_random + 0.05
    assert max(inside("across"), inside("dissimilar")) < at_random


@pytest.fixture(scope="module")
def model_host() -> ModelHost:
    return ModelHost(load_task("digits", {"hidden": "16"}), seed=0)


@pytest.mark.parametrize(("name", "way"), [("similar", "circles"), ("community", "circles"), ("community", "gossip")])
def test_the_same_seed_gives_the_same_row(name, way, model_host) -> None:
    cell = Cell("rules", way, name, RULES[name], "dirichlet:0.3", 1, 12, peers=16, looks=(8,))
    row = run_cell(cell, model_host)
    again = run_cell(cell, model_host)
    assert {**row, "cpu_s": 0} == {**again, "cpu_s": 0}
    figures = {name: value for name, value in row.items() if isinstance(value, float)}
    assert figures["common_worst"] <= figures["common"]
    assert figures["own_worst"] <= figures["own"]
    assert figures["common@8"] > 0
    assert figures["mb_per_node"] > 0
