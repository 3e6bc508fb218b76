"""Finds runs in the local network, for `join` without a code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from ..discovery.lan import Advert, runs_nearby
from ..discovery.mdns import look_around
from ..watch.text import clean
from ..wire.errors import LocalProblem, UsageError
from ..wire.invite import COMMAND, Invite, invite_command

NO_RUN = f"no run was found in the local network; ask a member for an invite (`{COMMAND} CODE`), or found a run"


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
