"""The command line: flags to Options, and on to whatever was asked. Imports what a command needs when it runs."""

from __future__ import annotations

import difflib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .. import __version__
from ..wire.errors import LocalProblem, UsageError
from .flags import ALL, LIMITS, PLACE, SAVED, WATCHING, takes
from .load import load
from .sim import sim

app = typer.Typer(
    name="p2pnode",
    epilog="Options can also be set as P2PNODE_NAME and so on, or in config.toml; `config show` says what is in force.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="The settings in force: `config show`.")
app.add_typer(config_app, name="config")
app.command()(sim)

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"p2pnode {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback(invoke_without_command=True)
@takes(ALL)
def node(ctx: typer.Context, flags: dict[str, object], version: Version = False) -> None:
    """Train models together without a server. Without a command: run a node.

    Founds a run when there is nothing to join, joins through --bootstrap, goes on with its run when started again.
    """
    if ctx.invoked_subcommand is not None:
        return
    options = load(flags, os.environ).options
    from .start import run_and_exit

    run_and_exit(options)


@config_app.command("show")
@takes(ALL)
def config_show(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Each setting's value and where it came from."""
    from .reports import show_config

    show_config(load(flags, os.environ), os.environ, json)


@app.command()
@takes(PLACE)
def peers(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Who is there: asks the running node, else reads what was stored."""
    from .reports import show_peers

    show_peers(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def status(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """How the running node is, and its invite."""
    from .reports import show_status

    show_status(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def leave(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Ask the running node to leave its swarm and end."""
    from .reports import ask_to_leave

    ask_to_leave(load(flags, os.environ).options.data_dir)


@app.command()
@takes(PLACE)
def pause(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Let the running node rest: it stays in its swarm and answers, also after a restart, until `resume`."""
    from .orders import order

    order(load(flags, os.environ).options.data_dir, "pause")


@app.command()
@takes(PLACE)
def resume(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Let a paused node work again."""
    from .orders import order

    order(load(flags, os.environ).options.data_dir, "resume")


@app.command()
@takes(PLACE, texts=LIMITS)
def limits(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Change how far the running node may use this machine, until it ends; `off` lifts a limit. Or just show them."""
    from .orders import change_limits

    place = {key: value for key, value in flags.items() if key not in LIMITS}
    words = {key: str(value) for key, value in flags.items() if key in LIMITS}
    change_limits(load(place, os.environ).options.data_dir, words)


@app.command()
@takes(SAVED)
def export(
    ctx: typer.Context,
    flags: dict[str, object],
    file: Annotated[str, typer.Argument(help="Where to, for example weights.safetensors.", metavar="FILE")],
    ema: Annotated[bool, typer.Option("--ema", help="The average over the last rounds.")] = False,
) -> None:
    """Write the weights as safetensors: from the running node, else from what it saved."""
    from .orders import export_weights

    export_weights(load(flags, os.environ).options, file, ema)


@app.command()
@takes(PLACE)
def revert(
    ctx: typer.Context,
    flags: dict[str, object],
    peer: Annotated[str, typer.Argument(help="Its id, the end of its id, or its name.", metavar="PEER")],
) -> None:
    """Leave a peer's deltas out of this node's weights, and show the loss before and after."""
    from .orders import revert_peer

    revert_peer(load(flags, os.environ).options.data_dir, peer)


@app.command()
@takes(PLACE)
def log(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """The running node's merges: with whom, how many bytes, the loss before and after."""
    from .reports import show_log

    show_log(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def blame(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Whose deltas are in which layer, as far back as entries are kept."""
    from .reports import show_blame

    show_blame(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def shards(
    ctx: typer.Context,
    flags: dict[str, object],
    shard: Annotated[str, typer.Argument(help="The beginning of an id, for its journey.", metavar="[SHARD]")] = "",
    json: Json = False,
) -> None:
    """The data the running node has and what its model makes of them; with SHARD, where one of them has been."""
    from .reports import show_shards

    show_shards(load(flags, os.environ).options.data_dir, shard, json)


@app.command()
@takes(WATCHING)
def watch(
    ctx: typer.Context,
    flags: dict[str, object],
    address: Annotated[str, typer.Argument(help="Of any of its nodes, as its invite has it.", metavar="ADDR")],
) -> None:
    """Look at a swarm without taking part: who is there, how they learn. Leaves nothing behind."""
    from .start import watch_and_exit

    watch_and_exit(flags, address)


@app.command()
@takes(ALL)
def doctor(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Check this machine, and the way to each --bootstrap; says what to do about each problem."""
    options = load(flags, os.environ).options
    from .doctor import examine_and_print

    raise typer.Exit(examine_and_print(options, json))


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="A name, package.module:Class, or file.py[:Class].", metavar="TASK")],
    option: Annotated[
        list[str] | None, typer.Option("--task-option", help="Set an option of the task.", metavar="KEY=VALUE")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Where the task's data are.", metavar="PATH")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", metavar="DEVICE")] = "cpu",
    json: Json = False,
) -> None:
    """Dry-run a task and say what is wrong with it, and what it costs."""
    from .check import check_and_print

    raise typer.Exit(check_and_print(task, option or [], data, device, json))


def main() -> None:
    """The program: one line on stderr for whatever the user or the machine got wrong."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign the terminal's encoding lacks is no reason to fail
    code = run(app, sys.argv[1:], "p2pnode")
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(app: typer.Typer, arguments: Sequence[str], program: str) -> int:
    """Run a command line; returns the exit code."""
    command: Any = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments), prog_name=program, standalone_mode=False)
    except (UsageError, LocalProblem) as error:
        return _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:  # click, whose errors these are, comes inside typer and cannot be imported
        if not hasattr(error, "format_message"):
            raise
        return _complain(_usage_problem(error, command), 2)
    return result if isinstance(result, int) else 0


def _complain(problem: str, code: int) -> int:
    from .ending import complain

    return complain(problem, code)


def _usage_problem(error: Any, command: Any) -> str:
    """What typer found wrong with the command line, with the likely remedy."""
    words = error.format_message().strip().rstrip(".")
    option = getattr(error, "option_name", None)
    if option and hasattr(error, "possibilities"):
        near = sorted(error.possibilities or (), key=lambda name: -difflib.SequenceMatcher(a=option, b=name).ratio())
        remedy = f"did you mean {near[0]}?" if near else "see p2pnode --help"
        return f"no such option {option[:60]}; {remedy}"
    if words.startswith("No such command"):
        wrong = words.partition("'")[2].partition("'")[0]
        known = getattr(getattr(error.ctx, "command", None), "commands", command.commands)
        near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
        address = "to join through an address write --bootstrap ADDR" if wrong.startswith("/") else "see p2pnode --help"
        return f"no such command {wrong[:60]!r}; {f'did you mean {near[0]}?' if near else address}"
    return f"{words[:1].lower()}{words[1:]}; see p2pnode --help"
