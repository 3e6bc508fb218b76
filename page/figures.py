"""Writes what follows from the table of figures (p2pnode/watch/glossary.py) and from docs/concepts.md.

`make figures` runs it: static/figures.js has the labels and tooltips of the page, docs/figures.md is the table for
people. A test fails when one of them is older than its source. The bundle imports figures.js and does not contain it,
so that no change of words needs npm.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from p2pnode.watch.glossary import FIGURES, markdown

ROOT = Path(__file__).parents[1]
SCRIPT, MARKDOWN = ROOT / "p2pnode/watch/dashboard/static/figures.js", ROOT / "docs/figures.md"
INTRODUCTION = """# Figures

Every figure that terminal, page, notebook, `status --json`, metrics and TensorBoard show, with its one definition. A
figure has the same label everywhere. Shares are 0 to 1 in JSON and metrics and are shown in per cent; "since this
start" means since the process was started. The words are explained in [concepts.md](concepts.md).

`make figures` writes this file from the table in `p2pnode/watch/glossary.py`.
"""


def words() -> dict[str, str]:
    """The words of docs/concepts.md, each with its first sentence."""
    text = (ROOT / "docs/concepts.md").read_text("utf-8")
    found = re.findall(r"^\*\*([\w -]+)\.\*\* (.*?[.])(?:\s|$)", text, re.MULTILINE | re.DOTALL)
    return {word.lower(): " ".join(re.sub(r"[*`]", "", sentence).split()) for word, sentence in found}


def contents() -> dict[Path, str]:
    """Each file with what it should contain."""
    tables = (("FIGURES", {key: list(found) for key, found in FIGURES.items()}), ("WORDS", words()))
    script = "".join(f"export const {name} = {json.dumps(table, indent=1)};\n" for name, table in tables)
    return {SCRIPT: f"// Written by page/figures.py.\n{script}", MARKDOWN: INTRODUCTION + markdown()}


if __name__ == "__main__":
    for path, content in contents().items():
        path.write_text(content, "utf-8")
