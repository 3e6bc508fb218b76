"""A node as a user starts it, with a probe inside that measures its event loop or its calls.

    PROBE_FILE=out.json PROBE_CALLS=500 python -m benchmarks.probed_node [flags of p2pnode]

With PROBE_CALLS it pings the first peer it finds that many times; otherwise it measures for as long as it runs how late
its event loop is.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from p2pnode.cli import main
from p2pnode.node.node import Node
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import Ping, Pong

TICK = 0.005
PACE = 0.025  # a peer admits 50 calls a second
WRITE_EVERY = 200  # ticks
KEPT = 2000  # latest ticks: 10 s and more


async def watch_loop(file: Path) -> None:
    """Write to a file, again and again, how late a timer of 5 ms fires, in milliseconds, over the latest 10 s."""
    late: deque[float] = deque(maxlen=KEPT)
    for tick in count():
        begun = time.perf_counter()
        await asyncio.sleep(TICK)
        late.append((time.perf_counter() - begun - TICK) * 1000)
        if tick % WRITE_EVERY == WRITE_EVERY - 1:
            write(file, late)


async def call_often(node: Node, calls: int, file: Path) -> None:
    """Write the round trips of pings to a file, in milliseconds."""
    peer = await somebody(node)
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        await node._services.calls.ask(peer, Ping(), Pong)
        times.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PACE)
    write(file, times)


async def somebody(node: Node) -> PeerId:
    while True:
        for peer in node._services.table.present(node.access.tag if node.access is not None else ""):
            return peer.id
        await asyncio.sleep(0.1)


def write(file: Path, values: Iterable[float]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps([round(value, 3) for value in values]))
    part.replace(file)


def add_probes() -> None:
    """Add the probe that the environment asks for to every node of this process."""
    file, calls = Path(os.environ["PROBE_FILE"]), int(os.environ.get("PROBE_CALLS", "0"))
    plain = Node.run

    async def run(self: Node) -> None:
        probe = asyncio.create_task(call_often(self, calls, file) if calls else watch_loop(file))
        try:
            await plain(self)
        finally:
            probe.cancel()

    Node.run = run  # type: ignore[method-assign]


if __name__ == "__main__":
    add_probes()
    main()
