"""Messages between circles, and about how a circle was founded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..wire.messages import Message, Name


class Bridge(Message, frozen=True, tag="bridge"):
    """A question to a node of another circle about its weights; answered with Exchanged."""

    body: bytes


class GetCircle(Message, frozen=True, tag="get circle"):
    """Asks how the peer's circle was founded."""

    circle: Name


class CircleIs(Message, frozen=True, tag="circle"):
    found: Annotated[bytes, msgspec.Meta(max_length=65536)]
