"""The notebooks run from top to bottom, as a reader runs them, and show what they promise."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
PICTURES = {"peer_graph.ipynb": 2}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs_and_shows_its_pictures(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not committed: they are made here"
    NotebookClient(notebook, timeout=110, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in data for data in shown) == PICTURES[name]
    assert any("<table>" in data.get("text/html", "") for data in shown)
