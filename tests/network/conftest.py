"""The swarms that the conformance suite runs on: real daemons on loopback, and the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.sim_backend import SimBackend
from tests.network.swarm_backends import Backend, HivemindBackend


@pytest.fixture(params=["sim", pytest.param("hivemind", marks=pytest.mark.live)])
def swarm(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return SimBackend() if request.param == "sim" else HivemindBackend(tmp_path)
