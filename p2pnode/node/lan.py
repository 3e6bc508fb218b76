"""Shows a node's run to others in the local network while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..discovery.lan import Advert
from ..discovery.mdns import Advertiser
from ..wire.errors import LocalProblem
from ..wire.invite import COMMAND
from .node import Node

SOON = 0.5  # seconds between looks until there is something to show,
LATER = 10.0  # and afterwards: each change is a few packets to everybody
GOODBYE_LIMIT = 1.5  # seconds


@contextlib.asynccontextmanager
async def visible_nearby(node: Node, wanted: bool) -> AsyncIterator[None]:
    """Shows the node's run in the local network while the block runs. A network that cannot is no reason to fail."""
    leaving = asyncio.Event()
    node.on_event(lambda event: leaving.set() if event.kind == "leaving" else None)
    showing = asyncio.create_task(_keep_shown(node, leaving)) if wanted else None
    try:
        yield
    finally:
        leaving.set()
        if showing is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_LIMIT):
                    await showing


async def _keep_shown(node: Node, leaving: asyncio.Event) -> None:
    """Shows what the node has to say, and anew when that changes; says goodbye when the node leaves."""
    shown: Advert | None = None
    advertiser: Advertiser | None = None
    reported = False
    while not await _set_within(leaving, SOON if shown is None else LATER):
        advert = node.advert()
        if advert == shown:
            continue
        try:
            if advertiser is not None and advert is not None and _same_place(advert, shown):
                await asyncio.to_thread(advertiser.update, advert)
            else:
                if advertiser is not None:
                    await asyncio.to_thread(advertiser.close)
                advertiser = None if advert is None else await asyncio.to_thread(Advertiser, advert)
            news = "" if advert is None or reported else _shown_to_others(advert)
        except LocalProblem as problem:
            if advertiser is not None:
                await asyncio.to_thread(advertiser.close)
            advertiser, news = None, f"others in the local network do not see this run: {problem}"
        if news and not reported:
            node.say("lan", news)
            reported = True
        shown = advert
    if advertiser is not None:
        await asyncio.to_thread(advertiser.close)


def _same_place(one: Advert, other: Advert | None) -> bool:
    """Whether the addresses are the same. If not, the machine may be in another network, which needs new sockets."""
    addresses = [each.invite.addresses if each is not None and each.invite is not None else () for each in (one, other)]
    return other is not None and addresses[0] == addresses[1]


def _shown_to_others(advert: Advert) -> str:
    if advert.invite is None:
        return "others in the local network see that a private run is here, and nothing else (--no-lan hides that too)"
    return f"in the local network `{COMMAND}` finds this run (--no-lan hides it)"


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
