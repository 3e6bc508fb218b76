"""What is installed: one package with its data and type marker, one command, one line where something is missing."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from p2pnode import __main__ as entry
from p2pnode import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as pip builds it, from a copy so that nothing is left in the checkout."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("p2pnode", "bootstrap", "benchmarks", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(target), str(source)], check=True, timeout=300)
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_one_package(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {"p2pnode", f"p2pnode-{__version__}.dist-info"}


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    """With the type marker, the digits and the dashboard's page."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "p2pnode").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert "p2pnode/py.typed" in files
    assert files <= set(wheel.namelist())


def test_the_wheel_offers_one_command(wheel: zipfile.ZipFile) -> None:
    found = ConfigParser()
    found.read_string(wheel.read(f"p2pnode-{__version__}.dist-info/entry_points.txt").decode())
    assert {section: dict(found[section]) for section in found.sections()} == {
        "console_scripts": {"p2pnode": "p2pnode.__main__:main"}
    }


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    facts = email.message_from_bytes(wheel.read(f"p2pnode-{__version__}.dist-info/METADATA"))
    assert (facts["License-Expression"], facts["Requires-Python"]) == ("MIT", ">=3.11")
    assert "Typing :: Typed" in facts.get_all("Classifier", [])
    assert {"notebook", "tensorboard", "dev"} <= set(facts.get_all("Provides-Extra", []))


def test_the_oldest_python_is_the_one_of_the_project() -> None:
    assert PROJECT["requires-python"] == f">={'.'.join(map(str, entry.OLDEST))}"
    assert f"Programming Language :: Python :: {'.'.join(map(str, entry.OLDEST))}" in PROJECT["classifiers"]


@pytest.mark.parametrize("arguments", [["-m", "p2pnode"], ["-m", "p2pnode", "doctor"], ["-m", "bootstrap"]])
def test_from_a_clone_without_dependencies_one_line_says_what_to_run(arguments: list[str]) -> None:
    alone = subprocess.run(
        [sys.executable, "-S", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert alone.returncode == 1
    assert alone.stdout == ""
    assert alone.stderr.startswith("p2pnode: the package ")
    assert alone.stderr.count("\n") == 1
    assert "make setup" in alone.stderr


def test_a_missing_heavy_package_is_named(tmp_path: Path) -> None:
    """torch is imported late; its absence is one line all the same."""
    script = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['p2pnode', '--data-dir', sys.argv[1]];"
        "from p2pnode.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the package torch is missing" in done.stderr


def test_outside_a_checkout_pip_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "__file__", str(tmp_path / "p2pnode" / "__main__.py"))
    assert entry.missing("msgspec").endswith(f"run `{sys.executable} -m pip install msgspec`")


def test_a_module_of_ours_that_is_missing_is_a_bug_and_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "p2pnode.cli", None)
    with pytest.raises(ModuleNotFoundError, match=r"p2pnode\.cli"):
        entry.main()
