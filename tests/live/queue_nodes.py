"""Nodes of a run with queues, as live tests look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from tests.live.cli_nodes import NodeProcess


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


def waiting_at(node: NodeProcess) -> int | None:
    """How many of its own items are not applied yet; None where it does not say."""
    figures = node.status()["jobs"]["zoo"]["state"].get("figures", ())
    return next((figure["value"] for figure in figures if figure["name"] == "items_waiting"), None)


def exported(node: NodeProcess, folder: Path, model: str) -> bytes:
    """The weights of one model, as a node exports them."""
    file = folder / f"{node.data_dir.name}-{model}.safetensors"
    done = node.ask("export", str(file), "--job", f"zoo/{model}", seconds=60.0)
    assert done.returncode == 0, done.stderr
    return b"".join(part.tobytes() for _, part in sorted(load_file(file).items()))
