"""The map of docs/architecture.md, kept true: imports point downwards, and files that are not listed here are pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "p2pnode"

# Bottom to top. A file may import from its own package and from those before it.
ORDER = [
    "wire",
    "config",
    "storage",
    "network",
    "runtime",
    "discovery",
    "compression",
    "merging",
    "similarity",
    "shards",
    "tasks",
    "training",
    "circles",
    "jobs",
    "node",
    "watch",
    "simulate",
    "integrations",
    "cli",
]

# Files that may use asyncio, files, clocks or global randomness. Every other file of these packages is pure.
# A folder name allows all of its files.
IMPURE = {
    "cli",
    "integrations",
    "node",
    "simulate",
    "watch",
    "storage",
    "network/base.py",
    "network/libp2p",
    "network/sim",
    "runtime/calls.py",
    "runtime/limiter.py",
    "runtime/machine.py",
    "runtime/seams.py",
    "runtime/throttle.py",
    "discovery/announcing.py",
    "discovery/directory.py",
    "discovery/mdns.py",
    "discovery/membership.py",
    "discovery/records.py",
    "discovery/registry.py",
    "merging/snapshots",
    "similarity/driver.py",
    "shards/driver.py",
    "shards/shipping.py",
    "shards/store.py",
    "shards/transfer.py",
    "tasks/corpus.py",
    "tasks/digits.py",
    "tasks/find.py",
    "tasks/names.py",
    "tasks/fashion_mnist.py",
    "tasks/gpt.py",
    "tasks/stream.py",
    "tasks/tokenizer.py",
    "tasks/tokens.py",
    "training/background.py",
    "training/host.py",
    "training/newcomer_probe.py",
    "training/pool.py",
    "training/read_ahead.py",
    "training/threads.py",
    "training/trainer.py",
    "circles/bridging.py",
    "circles/driver.py",
    "circles/founding.py",
    "circles/splits.py",
    "jobs",
}
IMPURE_MODULES = {"asyncio", "time", "os", "io", "logging", "socket", "subprocess", "tempfile", "hivemind"}
FILE_CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "mkdir", "unlink"}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def is_pure(path: Path) -> bool:
    return not any(place(path) == name or place(path).startswith(f"{name}/") for name in IMPURE)


def imports(path: Path) -> Iterator[str]:
    """Absolute names of everything a file imports, also inside functions and under TYPE_CHECKING."""
    package = ("p2pnode", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *((node.module,) if node.module else ())])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def upward_imports(path: Path) -> set[str]:
    own = ORDER.index(path.relative_to(PACKAGE).parts[0])
    names = {name for name in imports(path) if name.startswith("p2pnode.") and name.split(".")[1] in ORDER}
    return {f"{place(path)} -> {name}" for name in names if ORDER.index(name.split(".")[1]) > own}


@pytest.mark.parametrize("path", FILES, ids=place)
def test_imports_point_downwards(path: Path) -> None:
    found = upward_imports(path)
    assert not found, (
        f"{sorted(found)} points upwards; the order is {' < '.join(ORDER)}. Move the type down to a package both may "
        "import, or pass the value in as an argument (docs/architecture.md)."
    )


@pytest.mark.parametrize("path", [path for path in FILES if is_pure(path)], ids=place)
def test_files_that_decide_are_pure(path: Path) -> None:
    impure = {name for name in imports(path) if name.split(".")[0] in IMPURE_MODULES}
    remedy = "pass clock, randomness and files in (runtime/seams.py), or add the file to IMPURE if it is a driver"
    assert not impure, f"{place(path)} imports {sorted(impure)}; {remedy}"
    assert not uses_global_randomness(path), f"{place(path)} uses global randomness; {remedy}"
    assert not called_names(path) & FILE_CALLS, f"{place(path)} touches files; {remedy}"


def test_the_list_of_impure_files_is_true() -> None:
    missing = sorted(name for name in IMPURE if not (PACKAGE / name).exists())
    assert not missing, f"delete these from IMPURE, they are gone: {missing}"


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
    importers = {place(path) for path in FILES if any(name.split(".")[0] == "hivemind" for name in imports(path))}
    assert importers == {"network/libp2p/hivemind.py"}


# Commands about trained models, and what reads the plan of a train job from a manifest. Everything else finds kinds of
# work by name in the registry, so that a new kind is one package and one registration.
KNOWS_TRAINING = {
    "cli": "",
    "jobs/actors": "saved_task",  # which remembers the task of a job
    "jobs/queues": "",  # each of its models is planned as that of a train job
    "jobs/pipeline": "",  # its model is planned as that of a train job
    "jobs/paths": "",  # a path is planned and trained as the model of a train job
    "watch/view.py": "plan",
    "watch/similarity.py": "plan",
    "watch/notebook/html.py": "plan",
}


SHARED_BY_KINDS = {"blocks", "leases", "model"}  # packages in jobs/ that are no kinds of work: kinds are made of them


def test_no_kind_of_work_is_imported_but_through_the_registry() -> None:
    packages = {path.parent.name for path in (PACKAGE / "jobs").glob("*/__init__.py")}
    kinds = packages - SHARED_BY_KINDS
    found = {
        f"{place(path)} -> {name}"
        for path in FILES
        for name in imports(path)
        if name.startswith("p2pnode.jobs.") and (kind := name.split(".")[2]) in kinds
        if not place(path).startswith(f"jobs/{kind}/") and not knows_training(path, name)
        if not (kind == "loop" and place(path).startswith("integrations/"))  # which give the job its loop
        if not (kind == "pipeline" and place(path) == "cli/placement.py")  # which computes before there is a job
    }
    assert not found, f"{sorted(found)} ties the node to one kind of work; add what it needs to jobs/contract.py"


def knows_training(path: Path, name: str) -> bool:
    """Whether a file is on the list, for this part of jobs/train."""
    parts = [
        part for known, part in KNOWS_TRAINING.items() if place(path) == known or place(path).startswith(f"{known}/")
    ]
    return any(name.startswith(f"p2pnode.jobs.train.{part}") for part in parts)


def test_every_package_is_in_the_order() -> None:
    packages = {path.relative_to(PACKAGE).parts[0] for path in FILES}
    assert packages <= set(ORDER), f"add {sorted(packages - set(ORDER))} to ORDER"


def test_every_package_says_what_lives_there() -> None:
    for init in sorted(PACKAGE.rglob("__init__.py")):
        doc = ast.get_docstring(ast.parse(init.read_text())) or ""
        assert len(doc) > 40, f"{place(init)} needs a docstring: what lives here and where to start reading"


def test_no_two_public_classes_have_one_name() -> None:
    """A reader who searches for a name finds one thing."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, f"{twice}: say in the name what each is (EntryFacts, RoundFacts), or use one for both"
