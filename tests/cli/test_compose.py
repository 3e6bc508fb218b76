"""examples/four.compose.yml without containers: every command is one that p2pnode understands, every file is there."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from p2pnode.cli import app, run
from p2pnode.config.options import Options
from p2pnode.tasks.find import make_policy_task

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "four.compose.yml"
ADDRESS = "/ip4/10.0.0.1/tcp/31337/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
LAPTOPS = {"short": "Short", "long": "Long", "heavy": "Heavy", "weak": "Weak"}


@pytest.fixture(scope="module")
def compose() -> Any:
    return import_module("yaml").safe_load(FILE.read_text())


@pytest.fixture
def options(compose: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Options]:
    """The options that the node of a service starts with: a shell runs the command, and `p2pnode` says what it got."""
    data, meeting, programs = (tmp_path / name for name in ("data", "meeting", "bin"))
    for place in (data, meeting, programs):
        place.mkdir()
    (programs / "p2pnode").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "p2pnode").chmod(0o755)
    for name in ("bootstrap", "short"):
        (meeting / name).write_text(ADDRESS + "\n")
    monkeypatch.setenv("P2PNODE_DATA_DIR", str(data))
    monkeypatch.chdir(ROOT)  # /src in the container, which has the examples
    started: list[Options] = []

    def start(options: Options, next_place: object = None) -> None:
        started.append(options)

    monkeypatch.setattr("p2pnode.cli.start.run_and_exit", start)

    def read(service: str) -> Options:
        (command,) = compose["services"][service]["command"]
        script = command.replace("$$", "$").replace("/data/", f"{data}/").replace("/meeting/", f"{meeting}/")
        assert "$" not in command.replace("$$", ""), "compose would fill it in itself"
        environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
        assert run(app, done.stdout.splitlines(), "p2pnode") == 0
        return started[-1]

    return read


def test_the_meeting_point_and_four_laptops_start(compose: Any, options: Callable[[str], Options]) -> None:
    assert list(compose["services"]) == ["meeting-point", *LAPTOPS]
    assert options("meeting-point").role == "bootstrap"
    for service, task in LAPTOPS.items():
        found = options(service)
        assert found.name == service and found.run.bootstrap, service
        spec = found.train.task
        assert spec == f"examples/four_policies.py:{task}"
        assert type(make_policy_task(spec, {}, object)).__name__ == task
        assert (found.run.found, len(found.jobs)) == ((True, 1) if service == "short" else (False, 0))
    (job,) = options("short").jobs
    assert (job.name, job.kind) == ("critic", "actors")


def test_a_founder_that_starts_again_does_not_found_again(options: Callable[[str], Options], tmp_path: Path) -> None:
    assert options("short").run.found
    (tmp_path / "data" / "run.json").write_text("{}")
    assert not options("short").run.found


def test_services_wait_for_addresses_that_others_write(compose: Any) -> None:
    services = compose["services"]
    for service, parts in services.items():
        mounts = dict(reversed(mount.split(":")[:2]) for mount in parts["volumes"])
        assert set(mounts) == {"/data", "/meeting"} and set(mounts.values()) <= set(compose["volumes"])
        for file in re.findall(r"cat /meeting/(\S+)\)", parts["command"][0]):
            writer = {"bootstrap": "meeting-point"}.get(file, file)
            assert services[writer]["healthcheck"]["test"][-1] == f"/meeting/{file}"
        waits = parts.get("depends_on", {})
        assert all(services[other]["healthcheck"] for other in waits)
        assert all(how["condition"] == "service_healthy" for how in waits.values())
        assert bool(waits) == (service != "meeting-point")
    data = [parts["volumes"][0] for parts in services.values()]
    assert len(set(data)) == len(data), "no two nodes share a data directory"
    for service in ("meeting-point", "short"):
        test = services[service]["healthcheck"]["test"]
        assert test[:3] == ["CMD", "python", "-m"] and find_spec(test[3]) is not None


def test_the_image_can_be_built_from_what_is_here(compose: Any) -> None:
    build = compose["services"]["short"]["build"]
    assert (FILE.parent / build["context"]).resolve() == ROOT
    lines = build["dockerfile_inline"].splitlines()
    for line in (line for line in lines if line.startswith("COPY ")):
        assert all((ROOT / source).exists() for source in line.split()[1:-1]), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "'.[rl]'" in build["dockerfile_inline"] and "gymnasium" in project["optional-dependencies"]["rl"][0]
    assert "p2pnode" in project["scripts"], "the command that services start"
    assert lines[0] == "FROM python:3.11-slim" and project["requires-python"] == ">=3.11"
    assert json.dumps(compose["services"]["short"]["entrypoint"]) == '["sh", "-c"]'
