"""Getting into a run again."""

from __future__ import annotations

import random

import pytest

from p2pnode.config.options import Options
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.node.joining import Run, save_run
from p2pnode.node.node import Node
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import PROTOCOL
from p2pnode.wire.run import Manifest, RunAccess, run_id, sign_manifest

ME = Identity(b"m" * 32)


def test_a_saved_run_of_another_protocol_is_refused_in_one_line() -> None:
    signed = sign_manifest(ME, Manifest("old run", ME.peer_id, 1.0, b"nonce", protocol=PROTOCOL - 1))
    storage = MemoryStorage()
    save_run(storage, Run(RunAccess(run_id(signed)), signed), ())

    async def main() -> None:
        world = Seams(SimClock(0.0), random.Random(1), storage, inline)
        node = Node(Options(name="me"), world, SimSwarm(seed=1).network(ME.peer_id), ME)
        with pytest.raises(UsageError, match=rf"'old run' was founded for protocol {PROTOCOL - 1}.*--found"):
            await node.run()

    run_virtual(main())
