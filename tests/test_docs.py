"""The documents, kept true: what they name exists, their lines are short, and the words of ours are explained."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from p2pnode.cli import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "bootstrap" / "README.md"])
PATHS = re.compile(r"(?<![\w/.~-])((?:p2pnode|tests|docs|benchmarks|examples|bootstrap|page)/[\w./-]*\w)")
SYMBOL_IN_FILE = re.compile(r"`(?:\w+\.)?(\w+)` (?:in|\() ?`(p2pnode/[\w/]+\.py)`")
FILE_THEN_SYMBOL = re.compile(r"`(p2pnode/[\w/]+\.py)`\s+\(?`(?:\w+\.)?(\w+)`")
MODULES = re.compile(r"python -m ([a-z][\w.]*)")
LINKS = re.compile(r"\]\(([^)#:]+)\)")
MAX_LINE = 120
COMMANDS = re.compile(r"python -m p2pnode ([a-z]+)")
FLAGS = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
OUTSIDE = {"pytest", "venv"}  # modules in commands that are not ours
CODE = ("p2pnode", "tests", "benchmarks", "examples", "bootstrap")
FOR_USERS = ("README.md", "docs/tutorial.md", "docs/operating.md", "docs/tasks.md", "bootstrap/README.md")
OTHERS_FLAGS = {"--build", "--from", "--now", "--restart", "--scale"}  # of docker, uvx and systemctl
BENCHMARK_FLAGS = {"--case", "--kinds", "--limit", "--only", "--quick", "--seeds"}

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
    paths = [path for path in PATHS.findall(document.read_text()) if "NAME" not in path]  # NAME stands for any
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing, f"{name_of(document)} names what does not exist: {missing}"


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_everything_that_is_said_to_be_in_a_file_is_there(name: str) -> None:
    """Such as `choose_partners` in `p2pnode/similarity/partners.py`."""
    text = (ROOT / name).read_text()
    found = [(path, symbol) for symbol, path in SYMBOL_IN_FILE.findall(text)] + FILE_THEN_SYMBOL.findall(text)
    missing = [
        f"{symbol} in {path}"
        for path, symbol in found
        if not re.search(rf"(def|class) {symbol}\b|^{symbol}\b", (ROOT / path).read_text(), re.M)
    ]
    assert found and not missing, f"{name} names what is not there: {missing}"


def test_every_document_that_code_names_exists() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    named = {(name_of(path), found) for path in files for found in re.findall(r"docs/\w+\.md", path.read_text())}
    missing = sorted((path, found) for path, found in named if not (ROOT / found).exists())
    assert not missing, f"these files name documents that do not exist: {missing}"


def test_every_file_that_a_docstring_names_exists() -> None:
    """By its path from the file's own folder, one in it, the one above, the package or the project."""
    missing = []
    for path in sorted((ROOT / "p2pnode").rglob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        places = [path.parent, *path.parent.glob("*/"), path.parent.parent, ROOT / "p2pnode", ROOT]
        for name in set(re.findall(r"[\w./]*\w\.py\b", said)):
            if not any((place / name).exists() for place in places):
                missing.append(f"{name_of(path)}: {name}")
    assert not missing, f"these files name others that do not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    missing = [link for link in LINKS.findall(document.read_text()) if not (document.parent / link).exists()]
    assert not missing, f"{name_of(document)} links to what does not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_module_that_is_run_exists(document: Path) -> None:
    modules = set(MODULES.findall(document.read_text())) - OUTSIDE
    missing = [module for module in modules if find_spec(module.rstrip(".")) is None]
    assert not missing, f"{name_of(document)} runs modules that do not exist: {missing}"


def flags_of(command: Any) -> set[str]:
    """Returns the flags of a command, as typer builds it."""
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("name", FOR_USERS)
def test_every_flag_and_command_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    top: Any = typer.main.get_command(app)
    known = flags_of(top).union(*map(flags_of, top.commands.values()))
    unknown = set(FLAGS.findall(text)) - known - OTHERS_FLAGS - BENCHMARK_FLAGS
    assert not unknown, f"{name} names flags that do not exist: {sorted(unknown)}"
    commands = set(COMMANDS.findall(text)) - set(top.commands)
    assert not commands, f"{name} names commands that do not exist: {sorted(commands)}"


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
