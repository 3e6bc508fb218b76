"""Chooses the relays that p2pd uses when its node cannot be dialled: bootstrap peers that answer, each once.

p2pd takes relays only at its start, and waits for three minutes unless all of them are good. Measured: a dead address
in the list, or one peer with two addresses, makes a node behind NAT unreachable for that long.
"""

from __future__ import annotations

import asyncio
import contextlib

from ...wire.addresses import useful
from ...wire.types import Seconds

MAX_RELAYS = 3
PROBE_LIMIT: Seconds = 1.5
_CIRCUIT = "/p2p-circuit"
_HOSTS = ("ip4", "ip6", "dns", "dns4", "dns6")


def relay_candidates(bootstrap: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Peers that may relay for us, with their addresses, best first.

    A bootstrap peer that is itself reached through a relay cannot be one, but its address names that relay.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in bootstrap:
        address = text.partition(_CIRCUIT)[0]
        peer = address.rpartition("/p2p/")[2]
        known = found.get(peer, ())
        found[peer] = useful({*known, address}, len(known) + 1)
    return found


async def choose_relays(bootstrap: tuple[str, ...], limit: Seconds = PROBE_LIMIT) -> tuple[str, ...]:
    """One address for each of a few peers that answer now; when none answers, addresses that may answer later."""
    candidates = relay_candidates(bootstrap)
    async with asyncio.TaskGroup() as group:
        probes = [group.create_task(_first_answering(addresses, limit)) for addresses in candidates.values()]
    answering = [probe.result() for probe in probes]
    chosen = [text for text in answering if text] or [addresses[0] for addresses in candidates.values()]
    return tuple(chosen[:MAX_RELAYS])


async def _first_answering(addresses: tuple[str, ...], limit: Seconds) -> str:
    """The best address at which somebody listens, or ""."""
    answers = await asyncio.gather(*(_answers(text, limit) for text in addresses))
    return next((text for text, answered in zip(addresses, answers, strict=True) if answered), "")


async def _answers(text: str, limit: Seconds) -> bool:
    """Whether a TCP connection can be opened. Addresses of other protocols count as answering."""
    parts = text.split("/")
    if len(parts) < 5 or parts[1] not in _HOSTS or parts[3] != "tcp":
        return True
    try:
        async with asyncio.timeout(limit):
            _, writer = await asyncio.open_connection(parts[2], int(parts[4]))
    except (OSError, TimeoutError, UnicodeError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
