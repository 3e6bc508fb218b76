"""A node that does not get into its run says why: nobody there, another peer, version, run or key."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from p2pnode.config.options import Options, RunOptions
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.node.contact_report import BY_INVITE, ContactReport, report_contact, reports_in_words
from p2pnode.node.node import Node
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.addresses import Address
from p2pnode.wire.errors import (
    LocalProblem,
    NetworkDown,
    PeerMisbehaved,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    UsageError,
)
from p2pnode.wire.ids import Identity, RunId
from p2pnode.wire.messages import PROTOCOL, Welcome
from p2pnode.wire.run import RunAccess

ANN, BOB = Identity(b"a" * 32), Identity(b"b" * 32)
RUN, OTHER = RunId("r" * 26), RunId("q" * 26)
PUBLIC, PRIVATE = RunAccess(RUN), RunAccess(RUN, b"k" * 20)
PLACE = "/ip4/10.0.0.1/tcp/4001"
AT_ANN = Address(f"{PLACE}/p2p/{ANN.peer_id}", ANN.peer_id)


def welcome(**fields: Any) -> Welcome:
    return Welcome(PROTOCOL, 1.0, **fields)


def private(run: RunId) -> Welcome:
    return welcome(private=True, run_hint=RunAccess(run).hint(ANN.peer_id, BOB.peer_id))


@pytest.mark.parametrize(
    ("outcome", "access", "words", "final"),
    [
        (PeerUnreachable("abc cannot be reached: dial tcp4 10.0.0.1:4001: connection refused"), PUBLIC,
         f"nobody answers at {PLACE} (connection refused)", False),
        (PeerTimeout("contact: nothing within 8 s"), PUBLIC, f"nobody answers at {PLACE} (timed out)", False),
        (NetworkDown("p2pd ended"), PUBLIC, "was not tried: p2pd ended", False),
        (PeerMisbehaved("another peer answers there: X, not Y"), PUBLIC, "another peer answers there", True),
        (PeerRefused("protocol", "you speak protocol 3, this node 4"), PUBLIC, "update the older of the two", True),
        (PeerRefused("busy", "too many calls"), PUBLIC, "refuses (busy: too many calls)", False),
        (welcome(run=OTHER), PUBLIC, f"is in another run ({OTHER}): the address is stale or of another run", True),
        (welcome(run=RUN), PUBLIC, "does not describe it yet", False),
        (welcome(run=RUN), PRIVATE, "is not private and --run has a key; leave out", True),
        (private(RUN), PUBLIC, "is private and --run lacks its key", True),
        (private(RUN), PRIVATE, "is private and the key in --run is wrong", True),
        (private(OTHER), PRIVATE, "is in another run, which is private", True),
        (private(OTHER), PUBLIC, "is in another run, which is private", True),
        (welcome(role="bootstrap"), PUBLIC, "the meeting point at", False),
        (welcome(), PUBLIC, "is not in a run yet", False),
        (welcome(), None, "answers", False),
    ],
)  # fmt: skip
def test_each_outcome_has_its_own_words(outcome, access, words, final):
    report = report_contact(AT_ANN, outcome, access, BOB.peer_id)
    assert words in report.text
    assert report.final == final


@pytest.mark.parametrize(
    ("outcome", "access", "words"),
    [
        (PeerMisbehaved("another peer answers there: X, not Y"), PUBLIC, "the invite is stale"),
        (welcome(run=OTHER), PUBLIC, "is in another run"),
        (welcome(run=OTHER), PUBLIC, "the invite is stale"),
        (welcome(run=RUN), PRIVATE, "the invite has a key"),
        (private(RUN), PUBLIC, "the invite has no key"),
        (private(RUN), PRIVATE, "the key in the invite is wrong"),
        (private(OTHER), PRIVATE, "the invite is stale"),
        (PeerTimeout("contact: nothing within 8 s"), PUBLIC, "does not run or cannot be reached from here, or the inv"),
    ],
)  # fmt: skip
def test_a_user_who_pasted_a_code_reads_of_the_invite_and_not_of_flags(outcome, access, words):
    reports = [report_contact(AT_ANN, outcome, access, BOB.peer_id, BY_INVITE)]
    assert words in reports_in_words(reports, BY_INVITE)
    assert "--" not in reports_in_words(reports, BY_INVITE)


def test_of_many_addresses_the_first_are_named():
    assert (
        reports_in_words([ContactReport(str(number), True) for number in range(5)]) == "0; 1; 2; and 2 more addresses"
    )


def test_a_hint_is_worth_nothing_to_others():
    hints = {RunAccess(run).hint(speaker, listener)
             for run in (RUN, OTHER) for speaker in (ANN.peer_id, BOB.peer_id)
             for listener in (ANN.peer_id, BOB.peer_id)}  # fmt: skip
    assert len(hints) == 8
    assert PRIVATE.hint(ANN.peer_id, BOB.peer_id) == PUBLIC.hint(ANN.peer_id, BOB.peer_id)  # the key is not in it


# ---- whole nodes ----


class Meeting:
    """A founder and a node that tries to join it with other words than those of the invite."""

    def __init__(self, private: bool) -> None:
        self.swarm = SimSwarm(seed=1)
        self.storage = MemoryStorage()
        self.ann = self._node(ANN, RunOptions(private=private), MemoryStorage())
        host = self.swarm.hosts[0]
        self.address = Address(host.address, host.peer)

    def _node(self, me: Identity, run: RunOptions, storage: MemoryStorage) -> Node:
        seams = Seams(SimClock(0.0), random.Random(1), storage, inline)
        return Node(Options(run=replace(run, meet_only=True)), seams, self.swarm.network(me.peer_id), me)

    async def bob_fails(self, address: Address | None = None, **access: Any) -> tuple[Exception, list[str]]:
        """How joining ends, and what was said."""
        founded = asyncio.Event()
        self.ann.on_event(lambda event: founded.set() if event.kind == "founded" else None)
        running = asyncio.create_task(self.ann.run())
        await founded.wait()
        assert self.ann.access is not None
        wanted = replace(self.ann.access, **access)
        options = RunOptions(bootstrap=(address or self.address,), access=wanted, join_timeout=20.0)
        bob = self._node(BOB, options, self.storage)
        said: list[str] = []
        bob.on_event(lambda event: said.append(f"{event.kind}: {event.text}"))
        with pytest.raises((UsageError, LocalProblem)) as caught:
            await bob.run()
        self.ann.leave()
        await running
        return caught.value, said


@pytest.mark.parametrize(
    ("is_private", "access", "words"),
    [
        (True, {"key": b""}, "--run lacks its key"),
        (True, {"key": b"x" * 20}, "the key in --run is wrong"),
        (True, {"run": OTHER}, "is in another run, which is private"),
        (False, {"run": OTHER}, "is in another run ("),
        (False, {"key": b"x" * 20}, "is not private"),
    ],
)
def test_what_the_user_gave_wrongly_ends_as_wrong_usage_after_the_timeout(is_private, access, words):
    async def main() -> None:
        meeting = Meeting(is_private)
        error, said = await meeting.bob_fails(**access)
        assert isinstance(error, UsageError) and words in str(error)
        assert "could not join within 20 s" in str(error)
        tries = [line for line in said if line.startswith("searching: no member of run") and words in line]
        assert len(tries) >= 3  # it says so every time
        assert not any("left the swarm" in line for line in said)
        assert meeting.storage.read("run.json") is None

    run_virtual(main())


def test_nobody_there_is_no_fault_of_the_user():
    async def main() -> None:
        meeting = Meeting(False)
        nowhere = meeting.swarm.add_host(Identity(b"n" * 32).peer_id)
        error, said = await meeting.bob_fails(Address(nowhere.address, nowhere.peer))
        assert isinstance(error, LocalProblem)
        assert f"nobody answers at {nowhere.transport}" in str(error) and "--join-timeout" in str(error)
        assert any("still trying (2 so far)" in line for line in said)

    run_virtual(main())
