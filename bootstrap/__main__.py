"""`python -m bootstrap`: a meeting point. It trains nothing, is always there, and relays for nodes behind NAT."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import typer

from p2pnode.cli import run
from p2pnode.cli.flags import takes
from p2pnode.cli.load import load
from p2pnode.config.options import Options
from p2pnode.wire.errors import UsageError

PROGRAM = "p2pnode-bootstrap"  # also the name of its data directory
LISTEN = "/ip4/0.0.0.0/tcp/31337"  # a port that stays the same, because its address is written down in many places
KEYS = ("name", "data-dir", "bootstrap", "listen", "announce", "reachability", "log-format", "quiet", "config")

app = typer.Typer(
    name=PROGRAM,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command(epilog=f"Listens at {LISTEN} unless told otherwise. See bootstrap/README.md for how to keep one running.")
@takes(KEYS)
def meeting_point(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Run a meeting point: nodes find each other through it, and those behind NAT are reached through it.

    It takes part in no run. Several of them know each other through --bootstrap.
    """
    options = as_meeting_point(load(flags, os.environ, PROGRAM).options)
    from p2pnode.cli.start import run_and_exit

    run_and_exit(options)


def as_meeting_point(options: Options) -> Options:
    """The options of a meeting point, which always listens; UsageError when they forbid that."""
    if options.network.no_listen:
        raise UsageError("a meeting point has to listen; remove no-listen (P2PNODE_NO_LISTEN)")
    listen = options.network.listen or (LISTEN,)
    return replace(options, role="bootstrap", network=replace(options.network, listen=listen))


def main() -> None:
    sys.exit(run(app, sys.argv[1:], "python -m bootstrap"))


if __name__ == "__main__":
    main()
