"""The examples of loops run as they are, in two processes; together they reach a loss that neither reaches alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.cli_nodes import wait_for
from tests.live.test_own_loop import CODE

pytestmark = [pytest.mark.live, pytest.mark.slow]
ROOT = Path(__file__).parent.parent.parent
EXAMPLES = {"own_loop": 0.8, "accelerate_loop": 0.7, "lightning_module": 0.6, "hugging_face": 1.5, "lora": 2.0}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_examples_invite_is_pasted_and_both_reach_the_goal(name: str, tmp_path: Path) -> None:
    def start(who: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "P2PNODE_DATA_DIR": str(tmp_path / who),
            "P2PNODE_NO_LAN": "1",
            "P2PNODE_LISTEN": "/ip4/127.0.0.1/tcp/0",
            "EXAMPLE_SECONDS": "300",
            "EXAMPLE_OUTPUT": str(tmp_path / f"{who}-output"),
        }
        with (tmp_path / f"{who}.out").open("wb") as out:
            command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
            return subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=tmp_path)

    def out(who: str) -> str:
        return (tmp_path / f"{who}.out").read_text(errors="replace")

    processes = [start("founder")]
    try:
        code = wait_for("an invite", lambda: (found := CODE.search(out("founder"))) and found[1], 60)
        processes.append(start("joiner", code))
        for process in processes:
            assert process.wait(500) == 0, out("founder") + out("joiner")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    reached = [float(re.findall(r"^test loss (\S+?),?(?: |$)", out(who), re.M)[-1]) for who in ("founder", "joiner")]
    assert min(reached) < EXAMPLES[name]  # a little above its goal, since losses vary; alone, far above
