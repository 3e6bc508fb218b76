"""The swarms that the conformance suite runs on: real daemons on loopback, and the simulator."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from swarm_backends import Backend, HivemindBackend


def backends() -> list[Any]:
    found = [pytest.param("hivemind", marks=pytest.mark.live)]
    if importlib.util.find_spec("sim_backend") is not None:
        found.append(pytest.param("sim"))
    return found


@pytest.fixture(params=backends())
def swarm(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "hivemind":
        return HivemindBackend(tmp_path)
    from sim_backend import SimBackend

    return SimBackend()
