"""The notebooks run from top to bottom, as a reader runs them, and show what they promise."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from examples.recordings import TAKES, path_of

EXAMPLES = Path(__file__).parents[1] / "examples"
PICTURES = {"own_task.ipynb": 2, "peer_graph.ipynb": 5, "simulation.ipynb": 8}
WIDGETS = {"own_task.ipynb": 0, "peer_graph.ipynb": 1, "simulation.ipynb": 0}
REAL_NODES = {"own_task.ipynb"}
NOTEBOOKS = [
    pytest.param(path.name, marks=pytest.mark.live if path.name in REAL_NODES else ())
    for path in sorted(EXAMPLES.glob("*.ipynb"))
]
WIDGET = "application/vnd.jupyter.widget-view+json"
LARGEST = 2_000_000  # bytes of a committed recording


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_its_pictures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))  # the kernel runs in examples and tests this code
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not committed: they are made here"
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/svg+xml" in data for data in shown) == PICTURES[name], "figures are vectors"
    assert sum(WIDGET in data for data in shown) == WIDGETS[name]
    assert any("<table>" in data.get("text/html", "") for data in shown)


def test_recordings_stay_small_and_name_the_command_that_makes_them() -> None:
    found = {path.name: path.stat().st_size for path in EXAMPLES.glob("*.jsonl*")}
    assert set(found) == {path_of(name).name for name in TAKES}
    assert max(found.values()) <= LARGEST
    for name in TAKES:
        assert f"python -m examples.recordings {name}" in (EXAMPLES / f"{name}.ipynb").read_text("utf-8")
