"""A meeting point: it trains nothing, is always there, and relays for nodes behind NAT. See bootstrap/README.md."""

from __future__ import annotations

from dataclasses import replace

from ..config.options import Options
from ..wire.errors import UsageError

MEETING_POINT_DIR = "p2pnode-bootstrap"  # its data directory is not that of the user's node
LISTEN = "/ip4/0.0.0.0/tcp/31337"  # a port that stays the same, because its address is written down in many places


def as_meeting_point(options: Options) -> Options:
    """The options of a meeting point, which always listens; UsageError when they forbid that."""
    if options.network.no_listen:
        raise UsageError("a meeting point has to listen; remove no-listen (P2PNODE_NO_LISTEN)")
    listen = options.network.listen or (LISTEN,)
    return replace(options, role="bootstrap", network=replace(options.network, listen=listen))
