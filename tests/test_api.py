"""The public API is what docs/api.md describes: every name, every signature, and examples that are Python."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import p2pnode
from p2pnode.cli.flags import SIM
from p2pnode.simulate import simulate

DOCUMENT = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
SECTIONS = dict(re.findall(r"^## `p2pnode\.(\w+)`\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S))
BLOCKS = re.compile(r"```python\n(.*?)```", re.S)
SIGNATURE = re.compile(r"^p2pnode\.([\w.]+)\((.*?)\)$", re.M | re.S)


def test_every_public_name_has_a_section_and_no_other() -> None:
    assert set(SECTIONS) == set(p2pnode.__all__)
    assert all(not name.startswith("_") or name == "__version__" for name in p2pnode.__all__)


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    assert all(hasattr(p2pnode, name) for name in p2pnode.__all__)
    assert dir(p2pnode) == sorted(p2pnode.__all__)


def test_every_signature_is_as_documented() -> None:
    documented = [found for section in SECTIONS.values() for found in SIGNATURE.findall(first_block(section))]
    assert {name.partition(".")[0] for name, _ in documented} == set(p2pnode.__all__) - {"__version__"}
    for name, arguments in documented:
        assert f"{name}({' '.join(arguments.split())})" == f"{name}({signature(name)})"


def test_every_public_function_names_its_parameters() -> None:
    """Help, notebooks and editors show what can be given. The options of a task are the attributes of its class."""
    documented = [name for section in SECTIONS.values() for name, _ in SIGNATURE.findall(first_block(section))]
    anonymous = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name in set(documented) - {"Task"}:
        assert not [each for each in parameters_of(name) if each.kind in anonymous], name


def test_simulate_takes_what_the_command_takes() -> None:
    """`peers` and `task` are named by both; what the command writes out is an argument of the same name."""
    fields = {item.field.rpartition(".")[2] for item in SIM.values()}
    assert fields <= {each.name for each in parameters_of("simulate")}
    assert inspect.signature(p2pnode.simulate) == inspect.signature(simulate)


def test_the_public_names_come_by_import() -> None:
    """In a process that has imported nothing of p2pnode yet."""
    script = "from p2pnode import Swarm, Task, simulate; import inspect; print(inspect.signature(simulate))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("(peers:")


def test_every_public_method_of_a_task_and_a_swarm_is_documented() -> None:
    for name in ("Task", "Swarm"):
        methods = {
            found.rpartition(".")[2] for found, _ in SIGNATURE.findall(first_block(SECTIONS[name])) if "." in found
        }
        public = {each for each, value in vars(getattr(p2pnode, name)).items() if callable_member(each, value)}
        assert methods == public


def test_every_section_has_two_sentences_and_an_example_that_is_python() -> None:
    for name, section in SECTIONS.items():
        prose = BLOCKS.sub("", section)
        assert len(re.findall(r"[.!?](?:\s|$)", prose)) >= 2, f"{name} needs two sentences"
        *_, example = BLOCKS.findall(section)
        compile(example, f"docs/api.md, {name}", "exec", flags=0x2000)  # with `await` outside functions


def first_block(section: str) -> str:
    return BLOCKS.findall(section)[0]


def callable_member(name: str, value: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, staticmethod | classmethod))


def signature(name: str) -> str:
    """The parameters of a public name without annotations and `self`."""
    parameters = parameters_of(name)
    words = [shown(parameter) for parameter in parameters]
    keyword_only = [each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters]
    if any(keyword_only):
        words.insert(keyword_only.index(True), "*")
    return ", ".join(words)


def parameters_of(name: str) -> list[inspect.Parameter]:
    found: object = p2pnode
    for part in name.split("."):
        found = getattr(found, part)
    return [each for each in inspect.signature(found).parameters.values() if each.name != "self"]  # type: ignore[arg-type]


def shown(parameter: inspect.Parameter) -> str:
    prefix = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    if parameter.default is inspect.Parameter.empty:
        return prefix + parameter.name
    default = parameter.default
    return f"{parameter.name}={default.__name__ if inspect.isfunction(default) else repr(default)}"
