"""Where peers may be dialled: addresses they were reached at or announced, of a bounded number of peers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ...wire.addresses import Address, parse_address
from ...wire.bounded import keep_newest
from ...wire.errors import UsageError
from ...wire.ids import PeerId
from ...wire.messages import MAX_ADDRESSES

MAX_HINTED_PEERS = 1000


class Hints:
    """The peers heard of last stay, each with a few addresses."""

    def __init__(self) -> None:
        self._of: dict[PeerId, tuple[str, ...]] = {}

    def heard(self, peer: PeerId, addresses: Iterable[str]) -> None:
        """A peer's addresses, as somebody told: what is not an address of that peer is passed over."""
        good = []
        for text in list(addresses)[:MAX_ADDRESSES]:
            with contextlib.suppress(UsageError):
                address = parse_address(text)
                if address.peer == peer:
                    good.append(address.text)
        if good:
            self._remember(peer, good)

    def reached(self, address: Address) -> None:
        """Somebody answered there: that address comes first from now on."""
        self._remember(address.peer, (address.text, *self._of.get(address.peer, ())))

    def transports(self, peer: PeerId) -> tuple[str, ...]:
        return tuple(Address(text, peer).transport for text in self._of.get(peer, ()))

    def latest(self, count: int) -> list[PeerId]:
        return list(reversed(self._of))[:count]

    def _remember(self, peer: PeerId, addresses: Iterable[str]) -> None:
        keep_newest(self._of, peer, tuple(dict.fromkeys(addresses))[:MAX_ADDRESSES], MAX_HINTED_PEERS)
