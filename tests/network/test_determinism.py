"""Same seed, same trace: in two processes, whatever order their sets happen to have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from p2pnode.simulate import simulate

PROGRAM = """
import sys
from dataclasses import replace
from p2pnode.config.options import SimOptions
from p2pnode.network.sim import Fault
from p2pnode.simulate import make_scenario, run_scenario
faults = Fault(20, "partition", (1, 2), seconds=30), Fault(40, "daemon", (0, 3), seconds=5)
options = SimOptions(8, int(sys.argv[1]), seconds=100, loss=0.05, duplicate=0.05, reorder=0.1, churn=0.3)
scenario = make_scenario(options, None)
result = run_scenario(replace(scenario, faults=faults + scenario.faults, skew={4: 86400.0}))
print(result.digest)
"""


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, str(seed)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_trace_does_not_depend_on_the_process(seed: int) -> None:
    digests = {digest_in_another_process(seed, hash_seed) for hash_seed in ("0", "1", "12345")}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def test_two_runs_in_one_process_agree_and_two_seeds_differ() -> None:
    first = simulate(6, seed=1, seconds=60, loss=0.05)
    again = simulate(6, seed=1, seconds=60, loss=0.05)
    assert first.digest == again.digest
    assert first.peer_counts == again.peer_counts
    assert simulate(6, seed=2, seconds=60, loss=0.05).digest != first.digest
    assert simulate(6, seed=1, seconds=60, loss=0.06).digest != first.digest
