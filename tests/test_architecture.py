"""The layers of the design, kept true: imports go only downwards, and the pure part is pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "p2pnode"

# Top to bottom. A file may import from its own layer and from those below.
LAYERS = [
    {"__main__", "cli", "door", "simulate"},
    {"watch"},
    {"node"},
    {"network"},
    {"store"},
    {"tasks"},  # reads data files and loads a user's code
    # ---- below: pure ----
    {"config"},
    {"settings", "readers", "names"},
    {"peers", "communities", "shards", "handoff", "task", "rounds", "optimizers", "until", "guest", "bucket"},
    {"run"},
    {"merge"},
    {"deltaset"},
    {"deltas"},
    {"weights"},
    {"messages"},
    {"records", "addresses"},
    {"wire"},
    {"ids", "errors", "newest"},
]
# The node's own, bottom to top; what lies beside these packages is below them all, except what puts them together.
IN_NODE = ["meeting", "training", "partners", "shards", "learning"]
PUT_TOGETHER = {"node/node.py", "node/world.py"}
PURE = set().union(*LAYERS[6:])
IMPURE_MODULES = {"asyncio", "time", "os", "io", "logging", "socket", "subprocess", "tempfile", "hivemind"}
TOUCHES_FILES = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "mkdir", "unlink"}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def layer_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(name: str) -> int:
    matches = [index for index, names in enumerate(LAYERS) if name in names]
    assert matches, f"{name} belongs to no layer: add it to LAYERS"
    return matches[0]


def imports(path: Path) -> Iterator[str]:
    """Absolute names of everything a file imports, also inside functions, `if TYPE_CHECKING` left out."""
    package = ("p2pnode", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *((node.module,) if node.module else ())])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def own_layers(path: Path) -> set[str]:
    """The layer names a file imports from p2pnode."""
    names = {name.split(".")[1] for name in imports(path) if name.startswith("p2pnode.")}
    known = set().union(*LAYERS)
    return {name for name in names if name in known}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_only_downwards(path: Path) -> None:
    own = layer_of(layer_name(path))
    upwards = {name for name in own_layers(path) if layer_of(name) < own}
    assert not upwards, f"{path.name} imports upwards from {sorted(upwards)}"


def place_in_node(parts: Sequence[str]) -> int:
    return IN_NODE.index(parts[1]) if len(parts) > 1 and parts[1] in IN_NODE else -1


@pytest.mark.parametrize(
    "path", [path for path in FILES if layer_name(path) == "node"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_packages_of_the_node_import_only_downwards(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    named = {tuple(name.split(".")[1:]) for name in imports(path) if name.startswith("p2pnode.node.")}
    upwards = sorted(".".join(name) for name in named if place_in_node(name) > place_in_node(parts))
    assert not upwards or "/".join(parts) in PUT_TOGETHER, f"{path.name} imports upwards: {upwards}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if layer_name(path) in PURE], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_the_pure_part_is_pure(path: Path) -> None:
    impure = {name for name in imports(path) if name.split(".")[0] in IMPURE_MODULES}
    assert not impure, f"{path.name} reaches out: {sorted(impure)}"
    assert not uses_global_randomness(path), f"{path.name} uses global randomness"
    assert not called_names(path) & TOUCHES_FILES, f"{path.name} touches files"


def uses_global_randomness(path: Path) -> bool:
    """`random.Random` may be named as a type; anything else of the module is global state."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("random", "secrets", "uuid")
        and node.attr != "Random"
        for node in ast.walk(ast.parse(path.read_text()))
    )


def called_names(path: Path) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    functions = [node.func for node in calls]
    return {function.id for function in functions if isinstance(function, ast.Name)} | {
        function.attr for function in functions if isinstance(function, ast.Attribute)
    }


def test_hivemind_is_imported_in_one_file() -> None:
    importers = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(name.split(".")[0] == "hivemind" for name in imports(path))
    }
    assert importers == {"network/hivemind.py"}


def test_every_file_has_a_layer() -> None:
    for path in FILES:
        layer_of(layer_name(path))
