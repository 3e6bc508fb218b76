"""What a job of somebody else's run brings along: a file that is shown to the user, who decides whether it may run.

A kind of work whose jobs bring a file has a `JobFiles`: its light half, which is used before the node joins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..storage.files import Storage
from ..wire.ids import PeerId
from .contract import JobSettings


@dataclass(frozen=True)
class FileOffer:
    """A file that a job needs, and where the user finds a copy to read. The names come from peers."""

    run: str  # its name
    task: str
    file: str
    size: int
    sha256: str
    copy: str


Consent = Callable[[FileOffer], Awaitable[bool | None]]  # whether the user lets it run; None: nobody can be asked


async def nobody_to_ask(offer: FileOffer) -> bool | None:
    """The answer where there is no user."""
    return None


FindMembers = Callable[[], Awaitable[list[PeerId]]]  # looks for members of the run once more


@dataclass(frozen=True)
class Admission:
    """What a kind is given to find out, before the node joins, whether it can do a job here."""

    run: str  # its name
    job: str
    folder: str  # of the job, within the node's storage
    calls: JobCalls  # to members of the run
    members: FindMembers
    services: Services
    consent: Consent


@dataclass(frozen=True)
class JobFiles:
    """The light half of a kind: it can be imported without what the job itself needs."""

    # Plan, what the user wrote, admission. UsageError or LocalProblem when the job cannot be done here.
    admit: Callable[[dict[str, Any], JobSettings, Admission], Awaitable[None]]
    # Plan, storage, the job's folder: the file that members give to those who join; None where it is not here.
    offered: Callable[[dict[str, Any], Storage, str], bytes | None]
