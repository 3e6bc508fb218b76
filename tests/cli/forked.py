"""The real command line with a mark in place of the network: whoever gets there has passed all checks.

Importing torch and hivemind takes seconds, and there are about a hundred commands to try. So one process imports them,
and each command runs in a fork of it, with an environment, a standard output and a standard error of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

STARTED = 77
SCRIPT = f"""
import os, sys
from p2pnode.network.libp2p.hivemind import HivemindNetwork

async def start(self, server):
    print("the network starts", flush=True)
    os._exit({STARTED})

HivemindNetwork.start = start
from p2pnode.cli import main
"""
# Reads a line of JSON (arguments, environment, files for both outputs), forks, and answers with the exit code.
SERVE = """
import json, torch, p2pnode.jobs.train.prepare, p2pnode.node.node
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for file, number in ((request["out"], 1), (request["err"], 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["p2pnode", *request["arguments"]]
        try:
            main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    """Started with the first command; it ends when this process does, because its standard input ends."""
    pipe, environment = subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT + SERVE], stdin=pipe, stdout=pipe, text=True, env=environment)


def started(data_dir: Path, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """What `python -m p2pnode` with these arguments does until the network would start (exit code STARTED).

    With a `script` in place of SCRIPT it runs in a new process, where nothing has been imported yet.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith("P2PNODE_")}
    mine = {"P2PNODE_DATA_DIR": str(data_dir), "P2PNODE_LISTEN": "/ip4/127.0.0.1/tcp/0", "OMP_NUM_THREADS": "1"}
    if script:
        argv = [sys.executable, "-c", f"{script}\nsys.argv[0] = 'p2pnode'\nmain()", *arguments]
        return subprocess.run(argv, env={**clean, **mine}, capture_output=True, text=True, timeout=600, check=False)
    out, err = (data_dir.parent / f"{data_dir.name}.{name}" for name in ("out", "err"))
    request = {"arguments": arguments, "environment": {**clean, **mine}, "out": str(out), "err": str(err)}
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())
