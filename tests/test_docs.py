"""The documents, kept true: what they name exists, their lines are short, and the words of ours are explained."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "bootstrap" / "README.md"])
PATHS = re.compile(r"(?<![\w/.~-])((?:p2pnode|tests|docs|benchmarks|examples|bootstrap|page)/[\w./-]*\w)")
MODULES = re.compile(r"python -m ([a-z][\w.]*)")
LINKS = re.compile(r"\]\(([^)#:]+)\)")
MAX_LINE = 120
OUTSIDE = {"pytest", "venv"}  # modules in commands that are not ours

# Words that p2pnode uses in a sense of its own. Each is explained in docs/concepts.md, set in bold.
WORDS = (
    "node, peer, swarm, run, manifest, job, circle, community, partner, bridge, delta, entry, log, heads, lineage, "
    "genesis, snapshot, residual, fingerprint, probe, shard, holder, keeper, visit, model swap, confidence, reserve, "
    "retired, quarantined, lease, block, path, span"
)


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_path_that_is_named_exists(document: Path) -> None:
    missing = [path for path in PATHS.findall(document.read_text()) if not (ROOT / path).exists()]
    assert not missing, f"{name_of(document)} names what does not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    missing = [link for link in LINKS.findall(document.read_text()) if not (document.parent / link).exists()]
    assert not missing, f"{name_of(document)} links to what does not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_module_that_is_run_exists(document: Path) -> None:
    modules = set(MODULES.findall(document.read_text())) - OUTSIDE
    missing = [module for module in modules if find_spec(module.rstrip(".")) is None]
    assert not missing, f"{name_of(document)} runs modules that do not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_lines_are_short(document: Path) -> None:
    """Rows of tables cannot be wrapped."""
    lines = enumerate(document.read_text().splitlines(), 1)
    long = [number for number, line in lines if len(line) > MAX_LINE and not line.startswith("|")]
    assert not long, f"{name_of(document)}: lines {long} have more than {MAX_LINE} characters"


@pytest.mark.parametrize("word", WORDS.split(", "))
def test_every_word_of_ours_is_explained(word: str) -> None:
    bold = " ".join(re.findall(r"\*\*(.+?)\*\*", (ROOT / "docs" / "concepts.md").read_text())).lower()
    assert re.search(rf"\b{word}\b", bold), f"docs/concepts.md does not explain {word!r}"
