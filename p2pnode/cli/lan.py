"""The local network: shows a node to others there, and finds their runs for `join` without a code."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence

import typer

from ..discovery.lan import Advert, runs_nearby
from ..discovery.mdns import Advertiser, look_around
from ..node.node import Node
from ..watch.text import clean
from ..wire.errors import LocalProblem, UsageError
from ..wire.invite import COMMAND, Invite, invite_command

SOON = 0.5  # seconds between looks until there is something to show,
LATER = 10.0  # and afterwards: each change is a few packets to everybody
GOODBYE_LIMIT = 1.5  # seconds
NO_RUN = f"no run was found in the local network; ask a member for an invite (`{COMMAND} CODE`), or found a run"


# ---- being found ----


@contextlib.asynccontextmanager
async def visible_nearby(node: Node, wanted: bool) -> AsyncIterator[None]:
    """Shows the node's run in the local network while the block runs. A network that cannot is no reason to fail."""
    leaving = asyncio.Event()
    node.on_event(lambda event: leaving.set() if event.kind == "leaving" else None)
    showing = asyncio.create_task(_keep_shown(node, leaving)) if wanted else None
    try:
        yield
    finally:
        leaving.set()
        if showing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(showing, GOODBYE_LIMIT)


async def _keep_shown(node: Node, leaving: asyncio.Event) -> None:
    """Shows what the node has to say, and anew when that changes; says goodbye when the node leaves."""
    shown: Advert | None = None
    advertiser: Advertiser | None = None
    told = False
    while not await _set_within(leaving, SOON if shown is None else LATER):
        advert = node.advert()
        if advert == shown:
            continue
        try:
            if advertiser is not None and advert is not None and _same_place(advert, shown):
                await asyncio.to_thread(advertiser.update, advert)
            else:
                if advertiser is not None:
                    await asyncio.to_thread(advertiser.close)
                advertiser = None if advert is None else await asyncio.to_thread(Advertiser, advert)
            news = "" if advert is None or told else _shown_to_others(advert)
        except LocalProblem as problem:
            if advertiser is not None:
                await asyncio.to_thread(advertiser.close)
            advertiser, news = None, f"others in the local network do not see this run: {problem}"
        if news and not told:
            node.say("lan", news)
            told = True
        shown = advert
    if advertiser is not None:
        await asyncio.to_thread(advertiser.close)


def _same_place(one: Advert, other: Advert | None) -> bool:
    """Whether the addresses are the same. If not, the machine may be in another network, which needs new sockets."""
    addresses = [each.invite.addresses if each is not None and each.invite is not None else () for each in (one, other)]
    return other is not None and addresses[0] == addresses[1]


def _shown_to_others(advert: Advert) -> str:
    if advert.invite is None:
        return "others in the local network see that a private run is here, and nothing else (--no-lan hides that too)"
    return f"in the local network `{COMMAND}` finds this run (--no-lan hides it)"


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


# ---- finding ----


def invite_nearby() -> Invite:
    """The invite of the run in the local network that the user chooses.

    LocalProblem when there is none, or the user wants none; UsageError, after the lines to run, when nobody can answer.
    """
    print("looking for runs in the local network …", flush=True)
    try:
        runs = runs_nearby(look_around())
    except LocalProblem as problem:
        raise LocalProblem(f"cannot look for runs in the local network: {problem}") from None
    private = sum(run.invite is None for run in runs)
    public = [run for run in runs if run.invite is not None]
    if private:
        print(f"{private} private run{'s are' if private > 1 else ' is'} here; joining needs the code of an invite")
    if not public:
        raise LocalProblem(f"joining a private run needs its code: `{COMMAND} CODE`" if private else NO_RUN)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise _nobody_answers(public)
    chosen = _ask_which(public)
    if chosen is None or chosen.invite is None:
        raise LocalProblem("no run was chosen, so none was joined")
    return chosen.invite


def described(run: Advert) -> str:
    """A run in a few words. Name and task are what somebody in the network wrote."""
    members = f"{run.members} member{'' if run.members == 1 else 's'}"
    return f"{clean(run.name) or 'a run without a name'} ({clean(run.task) or 'no task'}, {members})"


def _nobody_answers(runs: Sequence[Advert]) -> UsageError:
    for run in runs:
        if run.invite is not None:
            print(f"{described(run)}:\n{invite_command(run.invite)}")
    return UsageError("nobody can answer here which run to join; run the line above, or one of them")


def _ask_which(runs: Sequence[Advert]) -> Advert | None:
    """The run that the user names; None for none."""
    if len(runs) == 1:
        return runs[0] if typer.confirm(f"join {described(runs[0])}?") else None
    for number, run in enumerate(runs, 1):
        print(f"{number:3}  {described(run)}")
    answer = typer.prompt(f"which one to join, 1 to {len(runs)}", default="none", show_default=True).strip()
    if answer == "none":
        return None
    if not (answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(runs)):
        raise UsageError(f"{answer[:20]!r} is not a number from 1 to {len(runs)}")
    return runs[int(answer) - 1]
