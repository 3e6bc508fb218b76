"""What came of contacting an address, in words: for the lines and errors of a node that does not get into its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..discovery.membership import Outcome
from ..wire.addresses import Address
from ..wire.errors import NetworkDown, PeerMisbehaved, PeerRefused, PeerTimeout
from ..wire.ids import PeerId
from ..wire.messages import Welcome
from ..wire.run import RunAccess

MAX_SHOWN = 3


class Given(NamedTuple):
    """The user's words for what leads to the run, so that a report names only what the user wrote."""

    stale: str
    wrong_key: str
    lacks_key: str
    needless_key: str


BY_INVITE = Given(
    stale="the invite is stale or of another run; ask for a new one",
    wrong_key="the key in the invite is wrong: the invite is stale; ask for a new one",
    lacks_key="the invite has no key; ask for the whole invite",
    needless_key="the invite has a key: it is stale; ask for a new one",
)
BY_RUN = Given(
    stale="the address is stale or of another run; ask for an invite",
    wrong_key="the key in --run is wrong; paste the founder's whole invite",
    lacks_key="--run lacks its key; paste the founder's whole invite",
    needless_key="--run has a key; leave out the dot and the key",
)


class ContactReport(NamedTuple):
    """What an address answered. `final`: asking again does not help, because what the user gave is wrong."""

    text: str
    final: bool
    nobody: bool = False  # answers there


def contact_reports(
    outcomes: Mapping[Address, Outcome], access: RunAccess | None, me: PeerId, given: Given = BY_RUN
) -> list[ContactReport]:
    """One report for each address contacted, for a node that looks for the run of `access`."""
    return [report_contact(address, outcome, access, me, given) for address, outcome in outcomes.items()]


def reports_in_words(reports: list[ContactReport], given: Given = BY_RUN) -> str:
    """The reports in one line; of many, the first ones."""
    more = f"; and {len(reports) - MAX_SHOWN} more addresses" if len(reports) > MAX_SHOWN else ""
    absent = bool(reports) and all(report.nobody for report in reports)
    hint = f": the other side does not run or cannot be reached from here, or {given.stale}" if absent else ""
    return "; ".join(report.text for report in reports[:MAX_SHOWN]) + more + hint


def report_contact(
    address: Address, outcome: Outcome, access: RunAccess | None, me: PeerId, given: Given = BY_RUN
) -> ContactReport:
    """Tells apart: nobody there, another peer, another version, another run, a wrong key, no member known."""
    place = address.transport
    if isinstance(outcome, Welcome):
        return _welcomed(place, address.peer, outcome, access, me, given)
    if isinstance(outcome, PeerMisbehaved):
        return ContactReport(f"{place}: {outcome}: {given.stale}", True)
    if isinstance(outcome, PeerRefused) and outcome.code == "protocol":
        text = f"the node at {place} is of another version ({outcome.reason}); update the older of the two"
        return ContactReport(text, True)
    if isinstance(outcome, PeerRefused):
        return ContactReport(f"the node at {place} refuses ({outcome})", False)
    if isinstance(outcome, NetworkDown):
        return ContactReport(f"{place} was not tried: {outcome}", False)
    reason = "timed out" if isinstance(outcome, PeerTimeout) else str(outcome).rpartition(": ")[2]
    return ContactReport(f"nobody answers at {place} ({reason})", False, nobody=True)


def _welcomed(
    place: str, peer: PeerId, welcome: Welcome, access: RunAccess | None, me: PeerId, given: Given
) -> ContactReport:
    if access is None:
        return ContactReport(f"the node at {place} answers", False)
    if welcome.private and welcome.run_hint == access.hint(peer, me):
        key = given.wrong_key if access.private else given.lacks_key
        return ContactReport(f"the run at {place} is private and {key}", True)
    if welcome.private:
        return ContactReport(f"the node at {place} is in another run, which is private: {given.stale}", True)
    if welcome.run == access.run and access.private:
        return ContactReport(f"the run at {place} is not private and {given.needless_key}", True)
    if welcome.run == access.run:
        return ContactReport(f"the node at {place} is in the run, but does not describe it yet", False)
    if welcome.run:
        return ContactReport(f"the node at {place} is in another run ({welcome.run}): {given.stale}", True)
    if welcome.role == "bootstrap":
        return ContactReport(f"the meeting point at {place} knows no member of the run at the moment", False)
    return ContactReport(f"the node at {place} is not in a run yet", False)
