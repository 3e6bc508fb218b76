"""The Grafana dashboard in examples/: what it draws is what a node serves, and its panels do not overlap."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

from p2pnode.watch.dashboard.metrics import JOB_METRICS, METRICS, OBSERVERS, PEERS, WELL_METRIC

BOARD: dict[str, Any] = json.loads(Path(__file__).parents[3].joinpath("examples/grafana.json").read_text())
KINDS = {metric.name: metric.kind for metric in (*METRICS, *JOB_METRICS, PEERS, OBSERVERS, WELL_METRIC)}


def expressions() -> list[str]:
    found = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    return [*found, *(one["definition"] for one in BOARD["templating"]["list"] if "definition" in one)]


def test_every_metric_it_names_exists() -> None:
    named = {name for text in expressions() for name in re.findall(r"p2pnode_\w+", text)}
    assert len(named) > 20
    assert named <= set(KINDS)


def test_only_counters_are_drawn_as_rates() -> None:
    rated = {name for text in expressions() for name in re.findall(r"(?:rate|increase)\((p2pnode_\w+)", text)}
    assert rated
    assert {KINDS[name] for name in rated} == {"counter"}


def test_panels_lie_side_by_side() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for one, other in combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
        assert one["x"] + one["w"] <= 24
