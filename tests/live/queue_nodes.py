"""Nodes of a run with queues, as live tests look at them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from p2pnode.node import control
from p2pnode.wire.control import ControlRequest
from tests.live.cli_nodes import PATIENCE, NodeProcess


def queues_of(node: NodeProcess) -> dict[str, dict[str, Any]]:
    """The table of queues that a node shows, by queue; empty while it has none."""
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    tables = node.status().get("jobs", {}).get("zoo", {}).get("tables", ())
    return {
        row[0]: dict(zip([name for name, _ in table["columns"]], row, strict=True))
        for table in tables
        if table["title"] == "queues"
        for row in table["rows"]
    }


def applied(node: NodeProcess) -> dict[str, int]:
    """How many items were applied, by queue."""
    return {name: int(row["applied"]) for name, row in queues_of(node).items()}


def has_applied(node: NodeProcess, count: int, since: dict[str, int] | None = None) -> bool:
    """Whether `count` items of every queue were applied, more than `since` says."""
    found, before = applied(node), since or {}
    return len(found) >= max(2, len(before)) and all(now >= before.get(name, 0) + count for name, now in found.items())


def owner_of(name: str, node: NodeProcess) -> str:
    """Who owns a queue; "" while nobody does, or it is not known."""
    return str(queues_of(node).get(name, {}).get("owner", ""))


def figure_of(node: NodeProcess, name: str) -> int | None:
    """A figure that a node shows of its queues; None where it does not say."""
    figures = node.status().get("jobs", {}).get("zoo", {}).get("state", {}).get("figures", ())
    return next((figure["value"] for figure in figures if figure["name"] == name), None)


def all_applied(nodes: Iterable[NodeProcess]) -> bool:
    """Whether each node sees all items that it made in its log."""
    return all(figure_of(node, "items_waiting") == 0 for node in nodes)


def exported(node: NodeProcess, folder: Path, model: str) -> bytes:
    """The weights of one model that members share, as a node exports them."""
    file = folder / f"{node.data_dir.name}-{model}.safetensors"
    request = ControlRequest("export", file=str(file), job=f"zoo/{model}", shared=True)
    control.ask(node.data_dir, request, PATIENCE * 60.0)
    return b"".join(part.tobytes() for _, part in sorted(load_file(file).items()))
