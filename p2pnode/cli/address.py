"""`python -m p2pnode.cli.address FILE`: write the address of the node that runs here into a file, for others to join.

Fails in one line when no node answers, so that a container's health check can be just this.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..node.control import ask
from ..node.load import load
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem, P2pnodeError, UsageError


def write_address(file: Path, data_dir: Path) -> None:
    """Ask the node on `data_dir` for its best address; LocalProblem when it has none yet."""
    status = ask(data_dir, ControlRequest("status")).status
    if status is None or not status.addresses:
        raise LocalProblem("the node has no address yet")
    fresh = file.with_name(file.name + ".new")
    try:
        fresh.write_text(status.addresses[0] + "\n")
        os.replace(fresh, file)
    except OSError as error:
        raise LocalProblem(f"cannot write {file}: {error.strerror}") from None


def main() -> None:
    try:
        if len(sys.argv) != 2:
            raise UsageError("usage: python -m p2pnode.cli.address FILE (the node's place in P2PNODE_DATA_DIR)")
        write_address(Path(sys.argv[1]), load({}, os.environ).options.data_dir)
    except P2pnodeError as error:
        sys.exit(f"p2pnode: {error}")


if __name__ == "__main__":
    main()
