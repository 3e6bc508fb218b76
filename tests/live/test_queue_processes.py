"""Three processes, one run, two models with queues: the owner is killed, another takes over, and all agree again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
LIMIT = 90.0


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def queues_of(node: NodeProcess) -> dict[str, dict[str, Any]]:
    """The table of queues that a node shows, by queue; empty while it has none."""
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    tables = node.status().get("jobs", {}).get("zoo", {}).get("tables", ())
    return {
        row[0]: dict(zip([name for name, _ in table["columns"]], row, strict=True))
        for table in tables
        for row in table["rows"]
    }


def has_applied(node: NodeProcess, count: int) -> bool:
    rows = queues_of(node)
    return len(rows) == 2 and all(row["applied"] >= count for row in rows.values())


def owner_of(name: str, node: NodeProcess) -> str:
    return str(queues_of(node)[name]["owner"])


def test_an_owner_that_is_killed_is_replaced(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    models = ["--model", "small=digits,hidden=8", "--model", "wide=digits,hidden=32"]
    ann = NodeProcess(tmp_path, "ann", "--job", "zoo,kind=queues,lease=4,reallocate=600", *models, learns=True)
    nodes.append(ann)
    invite = pasted(ann.invite())[3:]
    ben, cat = (NodeProcess(tmp_path, name, *invite, learns=True) for name in ("ben", "cat"))
    nodes += [ben, cat]
    for node in nodes:
        wait_for(f"items of both queues at {node.data_dir.name}", lambda node=node: has_applied(node, 20), LIMIT)  # type: ignore[misc]
    # The founder began; on a busy machine a lease of 4 s may have moved since, so ask who owns the queue now.
    by_id = {node.status()["id"]: node for node in nodes}
    first = owner_of("wide", ann)
    killed = by_id[first]
    survivors = [node for node in nodes if node is not killed]
    watcher = survivors[0]

    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    wait_for("another owner", lambda: owner_of("wide", watcher) not in ("", first), LIMIT)
    before = max(row["applied"] for row in queues_of(watcher).values())
    wait_for("that it applies items", lambda: has_applied(watcher, before + 20), LIMIT)
    assert queues_of(watcher)["wide"]["term"] >= 1

    again = NodeProcess(tmp_path, killed.data_dir.name, learns=True)
    nodes.append(again)
    everyone = [again, *survivors]
    wait_for("the old owner to follow", lambda: has_applied(again, before + 20), LIMIT)
    for node in everyone:
        node.ask("pause")

    def digests() -> set[bytes]:
        found = set()
        for node in everyone:
            file = tmp_path / f"{node.data_dir.name}.safetensors"
            done = node.ask("export", str(file), "--job", "zoo/wide", seconds=60.0)
            assert done.returncode == 0, done.stderr
            found.add(b"".join(part.tobytes() for _, part in sorted(load_file(file).items())))
        return found

    wait_for("equal weights at all nodes", lambda: len(digests()) == 1, LIMIT)
    wrong = watcher.ask("export", str(tmp_path / "one.pt"), "--job", "zoo")
    assert wrong.returncode != 0 and "say which model, as in --job zoo/small" in wrong.stderr
    for node in everyone:
        node.signalled(signal.SIGTERM, 20.0)
        assert node.left_behind() == []
