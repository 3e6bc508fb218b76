"""Messages by which members of a circle exchange what a merge policy shares."""

from __future__ import annotations

from ..wire.messages import Message, Name


class Exchange(Message, frozen=True, omit_defaults=True, tag="exchange"):
    """A merge policy's question, or what it pushes. Only the policy knows the content of `body`."""

    body: bytes
    push: bool = False
    circle: Name = ""  # the asking node's


class Exchanged(Message, frozen=True, tag="exchanged"):
    body: bytes = b""
