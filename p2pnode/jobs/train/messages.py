"""Messages of model swaps and of comparing models, each request above its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.messages import Message, Name
from ...wire.types import MAX_PLACE_BYTES, Sketch


class SwapModels(Message, frozen=True, tag="swap"):
    """Asks to train copies of both models on the other's data, each for a few local steps."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class SwapAccepted(Message, frozen=True, tag="accepted"):
    """Agreed: each side now fetches the other's weights."""

    private: bool  # the data never travel
    shard_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # size of a shard of them


class SwapResult(Message, frozen=True, tag="result"):
    """How training there changed the peer's weights; answered with Exchanged."""

    delta: bytes


class GetWeights(Message, frozen=True, tag="weights"):
    """A stream of a copy of the asked node's weights."""


class GetProbe(Message, frozen=True, tag="probe"):
    """What the peer's model makes of the run's probe with the weights of a position of the log."""

    place: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_PLACE_BYTES)]
    circle: Name = ""


class ProbeIs(Message, frozen=True, tag="probe is"):
    """Sketches of the model's outputs and of its losses; empty where they cannot be compared."""

    outputs: Sketch = ()
    losses: Sketch = ()
