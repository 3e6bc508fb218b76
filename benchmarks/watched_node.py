"""A node as a user starts it, whose page shows made-up peers.

WATCHED_PEERS=64 python -m benchmarks.watched_node [flags of p2pnode]
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from benchmarks.fake_node import FakeNode
from p2pnode.cli import main
from p2pnode.node.node import Node
from p2pnode.wire.status import NodeStatus

_status, _look_around = Node.status, Node.look_around
_swarm = FakeNode(int(os.environ.get("WATCHED_PEERS", "64")), 4, shards=0)


def status(self: Node) -> NodeStatus:
    made_up = _swarm.status()
    return replace(_status(self), peers=made_up.peers, exchanges=made_up.exchanges)


async def look_around(self: Node) -> None:
    await _look_around(self)
    _swarm.turn()


if __name__ == "__main__":
    Node.status, Node.look_around = status, look_around  # type: ignore[method-assign]
    main()
