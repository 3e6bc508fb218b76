"""What drivers and servers of a pipeline say to each other."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from ...wire.messages import MAX_CALL_BYTES, Message
from ...wire.types import Count
from .spans import MAX_BLOCKS

MAX_TENSOR_BYTES = (MAX_CALL_BYTES - (32 << 10)) // 2  # two of them fit a call
MAX_SETTLED = 256  # tickets in one message

Block = Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOCKS)]
Samples = Annotated[int, msgspec.Meta(ge=1, le=64)]
TensorBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_TENSOR_BYTES)]
TicketNumbers = tuple[Count, Block, Block]  # number of the micro-batch, first block, and the one after the last
Settled = Annotated[tuple[TicketNumbers, ...], msgspec.Meta(max_length=MAX_SETTLED)]


class Forward(Message, frozen=True, tag="forward"):
    """Asks what some blocks make of hidden states."""

    limited_by_job: ClassVar[bool] = True

    first: Block
    stop: Block
    samples: Samples
    hidden: TensorBytes


class Backward(Message, frozen=True, tag="backward"):
    """Asks for the gradient before some blocks, and to add up those of the parameters.

    `number` is that of the driver's micro-batch; 0 asks for the gradient alone, to compare it.
    """

    limited_by_job: ClassVar[bool] = True

    first: Block
    stop: Block
    samples: Samples
    number: Count
    hidden: TensorBytes
    gradient: TensorBytes


class TensorIs(Message, frozen=True, tag="tensor"):
    tensor: TensorBytes


class Settle(Message, frozen=True, tag="settle"):
    """Says with which answers the driver went on, and with which it did not."""

    counted: Settled = ()
    dropped: Settled = ()


class SettleDone(Message, frozen=True, tag="settled"):
    """`late` of them had been taken out before, because nobody had confirmed them in time."""

    late: Count = 0
