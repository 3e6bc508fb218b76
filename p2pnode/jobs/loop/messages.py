"""Messages of loop jobs, each request above its answer."""

from __future__ import annotations

from ...wire.messages import Message
from ...wire.types import Count


class GetSteps(Message, frozen=True, tag="steps"):
    """How many steps the lineage of the shared model has made, for the learning rate of a newcomer."""


class StepsAre(Message, frozen=True, tag="steps are"):
    """The answer."""

    steps: Count
