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
STALE = "the invite is stale or of another run; ask for a new one"


class ContactReport(NamedTuple):
    """What an address answered. `final`: asking again does not help, because what the user gave is wrong."""

    text: str
    final: bool


def contact_reports(outcomes: Mapping[Address, Outcome], access: RunAccess | None, me: PeerId) -> list[ContactReport]:
    """One report for each address contacted, for a node that looks for the run of `access`."""
    return [report_contact(address, outcome, access, me) for address, outcome in outcomes.items()]


def in_words(reports: list[ContactReport]) -> str:
    """The reports in one line; of many, the first ones."""
    more = f"; and {len(reports) - MAX_SHOWN} more addresses" if len(reports) > MAX_SHOWN else ""
    return "; ".join(report.text for report in reports[:MAX_SHOWN]) + more


def report_contact(address: Address, outcome: Outcome, access: RunAccess | None, me: PeerId) -> ContactReport:
    """Tells apart: nobody there, another peer, another version, another run, a wrong key, no member known."""
    place = address.transport
    if isinstance(outcome, Welcome):
        return _welcomed(place, address.peer, outcome, access, me)
    if isinstance(outcome, PeerMisbehaved):
        return ContactReport(f"{place}: {outcome}: {STALE}", True)
    if isinstance(outcome, PeerRefused) and outcome.code == "protocol":
        text = f"the node at {place} is of another version ({outcome.reason}); update the older of the two"
        return ContactReport(text, True)
    if isinstance(outcome, PeerRefused):
        return ContactReport(f"the node at {place} refuses ({outcome})", False)
    if isinstance(outcome, NetworkDown):
        return ContactReport(f"{place} was not tried: {outcome}", False)
    reason = "timed out" if isinstance(outcome, PeerTimeout) else str(outcome).rpartition(": ")[2]
    return ContactReport(f"nobody answers at {place} ({reason})", False)


def _welcomed(place: str, peer: PeerId, welcome: Welcome, access: RunAccess | None, me: PeerId) -> ContactReport:
    if access is None:
        return ContactReport(f"the node at {place} answers", False)
    if welcome.private and welcome.run_hint == access.hint(peer, me):
        key = "the key in --run is wrong" if access.private else "--run lacks its key"
        return ContactReport(f"the run at {place} is private and {key}; paste the founder's whole invite", True)
    if welcome.private:
        return ContactReport(f"the node at {place} is in another run, which is private: {STALE}", True)
    if welcome.run == access.run and access.private:
        return ContactReport(f"the run at {place} is not private; leave out the dot and the key in --run", True)
    if welcome.run == access.run:
        return ContactReport(f"the node at {place} is in the run, but does not describe it yet", False)
    if welcome.run:
        return ContactReport(f"the node at {place} is in another run ({welcome.run}): {STALE}", True)
    if welcome.role == "bootstrap":
        return ContactReport(f"the meeting point at {place} knows no member of the run at the moment", False)
    return ContactReport(f"the node at {place} is not in a run yet", False)
