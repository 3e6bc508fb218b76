"""How a lease is handed over from one member to another, in every kind of work that has leases."""

from __future__ import annotations

from ...wire.messages import Message
from .lease import Lease


class OfferLease(Message, frozen=True, tag="offer lease"):
    """The owner hands its lease over."""

    lease: Lease


class LeaseTaken(Message, frozen=True, tag="lease taken"):
    """The lease with the signature of the new owner."""

    lease: Lease
