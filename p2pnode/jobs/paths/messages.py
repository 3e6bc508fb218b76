"""Messages between members of a paths job, besides those by which blocks are shared."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.messages import Message
from .grid import MAX_PATHS


class KeepCopy(Message, frozen=True, tag="keep copy"):
    """Asks to fetch the blocks of a path now, because the sender, the last who trains it, leaves."""

    path: Annotated[int, msgspec.Meta(ge=0, lt=MAX_PATHS)]


class CopyKept(Message, frozen=True, tag="copy kept"):
    pass
