"""The command line: what people type after `python -m p2pnode`.

Here are the commands themselves; each imports what it needs when it runs, so that `--help` is quick. `flags.py` makes
flags from config/settings.py, node/load.py reads flags, environment and TOML into `Options`, `invite_argument.py` the
code of an invite. `start.py` runs a node and `ending.py` ends it; `reports.py` prints what a node knows; `commands.py`
tells a running node what to do; `doctor.py` checks the machine, `check.py` a task; `sim.py` simulates a swarm;
`meeting_point.py` is `bootstrap`; `lan.py` finds runs in the local network; `placement.py` says what a pipeline would
do; `address.py` is a health check for containers.
"""

from __future__ import annotations

import difflib
import io
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .. import __version__
from ..config.options import TrainOptions
from ..config.resolve import Resolved, read_flag
from ..config.settings import SETTINGS
from ..config.units import read_rate, read_size, read_time
from ..node.load import load
from ..wire.control import EXPERT_ACTIONS, MAX_LENGTH, ControlRequest
from ..wire.errors import LocalProblem, UsageError, suggestion
from ..wire.invite import decode_invite
from .flags import ALL, CHECKING, LIMITS, MEETING_POINT, PLACE, SAVED, WATCHING, takes
from .invite_argument import read_code_argument
from .meeting_point import LISTEN, MEETING_POINT_DIR, as_meeting_point
from .sim import sim

app = typer.Typer(
    name="p2pnode",
    epilog="Options can also be set as P2PNODE_NAME and so on, or in config.toml; see `config show`.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
PROGRAM = "p2pnode" if os.path.basename(sys.argv[0]) == "p2pnode" else "python -m p2pnode"  # as it was started
COMPLETE = "_P2PNODE_COMPLETE"  # the shell completion of the command `p2pnode` sets this variable
config_app = typer.Typer(help="Show the settings in force: `config show`.")
app.add_typer(config_app, name="config")
app.command()(sim)

Job = Annotated[str, typer.Option("--job", help="Which of the run's jobs; the first one if left out.", metavar="NAME")]
PathName = Annotated[
    str,
    typer.Option("--path", help="Of a run with paths: which one, such as 0/1; `all` to export each.", metavar="PATH"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"p2pnode {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback(invoke_without_command=True)
@takes(ALL)
def node(ctx: typer.Context, flags: dict[str, object], version: Version = False) -> None:
    """Train models together without a server. Without a command: run a node.

    The node founds a new run and prints an invite; `join CODE` takes part in the run of an invite. Started again, a
    node goes on with its run.
    """
    if ctx.invoked_subcommand is not None:
        return
    _run_node(load(flags, os.environ), flags)


def _run_node(resolved: Resolved, flags: dict[str, object]) -> NoReturn:
    """Run a node with these options. Where the user named no data directory, it gets one that is not in use."""
    from .start import run_and_exit

    named = resolved.origins["data-dir"] != "default"
    next_place = None if named else lambda path: load(flags, os.environ, default=path).options
    run_and_exit(resolved.options, next_place)


@app.command()
@takes(ALL)
def join(
    ctx: typer.Context,
    flags: dict[str, object],
    code: Annotated[
        str,
        typer.Argument(
            help="The code of the invite that a member sent you; @FILE or - (standard input) to read it from there.",
            metavar="[CODE]",
        ),
    ] = "",
) -> None:
    """Run a node in the run of an invite. Without a code: look for runs in the local network, and ask which to join."""
    if code:
        code = read_code_argument(code, sys.stdin)
        decode_invite(code)  # an error must not name the flag --invite, which the user did not write
        flags = {**flags, "invite": code}
    resolved = load(flags, os.environ)
    if resolved.options.run.invite is None and not resolved.options.run.bootstrap:
        from .lan import invite_nearby

        flags = {**flags, "invite": str(invite_nearby())}
        resolved = load(flags, os.environ)
    _run_node(resolved, flags)


@config_app.command("show")
@takes(ALL)
def config_show(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Show the value of each setting and where it came from."""
    from .reports import show_config

    show_config(load(flags, os.environ), os.environ, json)


@app.command()
@takes(PLACE)
def peers(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """List the peers that the running node knows, or those it met before if no node is running."""
    from .reports import show_peers

    show_peers(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def status(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Show how the running node is doing, and its invite."""
    from .reports import show_status

    show_status(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def jobs(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """List the jobs of the running node: state, round, loss, accuracy, and share of the compute time."""
    from .reports import show_jobs

    show_jobs(load(flags, os.environ).options.data_dir, json)


@app.command()
@takes(PLACE)
def leave(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Ask the running node to leave its swarm and end."""
    from .reports import ask_to_leave

    ask_to_leave(load(flags, os.environ).options.data_dir)


@app.command()
@takes(PLACE)
def pause(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Pause the running node, also after a restart, until `resume`. It stays in its swarm and answers."""
    from .commands import order

    order(load(flags, os.environ).options.data_dir, "pause")


@app.command()
@takes(PLACE)
def resume(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Let a paused node work again."""
    from .commands import order

    order(load(flags, os.environ).options.data_dir, "resume")


@app.command()
@takes(PLACE, texts=LIMITS)
def limits(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Change the limits of the running node until it ends; `off` lifts one. Without flags: show the limits."""
    from .commands import change_limits

    place = {key: value for key, value in flags.items() if key not in LIMITS}
    written = {key: str(value) for key, value in flags.items() if key in LIMITS}
    change_limits(load(place, os.environ).options.data_dir, written)


@app.command()
@takes(SAVED)
def export(
    ctx: typer.Context,
    flags: dict[str, object],
    file: Annotated[str, typer.Argument(help="The file to write, for example weights.safetensors.", metavar="FILE")],
    shared: Annotated[
        bool, typer.Option("--shared", help="Write the weights that members share bit by bit, not their running mean.")
    ] = False,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="First let all members lower their learning rate for some steps: a better model, later."
        ),
    ] = False,
    path: PathName = "",
    job: Job = "",
) -> None:
    """Write the whole model, as .safetensors or .pt, from the running node or from what it saved."""
    from .commands import export_settled, export_weights

    options = load(flags, os.environ).options
    if settle and shared:
        raise UsageError("--settle writes the shared weights at the end of the phase: leave out --shared")
    if settle:
        export_settled(options.data_dir, file, job)
    else:
        export_weights(options, file, shared, job, path)


@app.command()
@takes((*SAVED, "paths"))
def router(ctx: typer.Context, flags: dict[str, object], job: Job = "") -> None:
    """Show which documents each path of the run got; with --paths, which they would get, before it is founded."""
    from .commands import show_router

    show_router(load(flags, os.environ).options, job)


@app.command()
@takes(PLACE)
def expert(
    ctx: typer.Context,
    flags: dict[str, object],
    action: Annotated[str, typer.Argument(help="add, remove, use, ignore or list.", metavar="ACTION")] = "list",
    name: Annotated[str, typer.Argument(help="The expert's name.", metavar="NAME")] = "",
    data: Annotated[str, typer.Option("--data", help="Data of your own that it is trained on; they stay here.")] = "",
    steps: Annotated[int, typer.Option("--steps", help="Local steps of its training.", min=1, max=1_000_000)] = 200,
    job: Job = "",
) -> None:
    """Add an expert of your own to the run's paths, withdraw it, or choose which experts mixtures use here."""
    from .commands import change_experts

    chosen = next((one for one in EXPERT_ACTIONS if one == action), None)
    if chosen is None:
        raise UsageError(f"expert {action[:40]!r} is unknown; {suggestion(action, EXPERT_ACTIONS)}")
    if chosen != "list" and not name:
        raise UsageError(f"expert {action}: name the expert, as in `expert {action} mine`")
    source = str(Path(data).expanduser().absolute()) if data else ""
    request = ControlRequest("expert", action=chosen, expert=name, data=source, steps=steps, job=job)
    change_experts(load(flags, os.environ).options.data_dir, request)


@app.command()
@takes(PLACE)
def generate(
    ctx: typer.Context,
    flags: dict[str, object],
    prompt: Annotated[str, typer.Argument(help="The text to continue.", metavar="PROMPT")] = "",
    model: Annotated[str, typer.Option("--model", help="A file that `export` wrote, instead of a running node.")] = "",
    length: Annotated[int, typer.Option("--length", help="Tokens to generate.", min=1, max=MAX_LENGTH)] = 200,
    temperature: Annotated[
        float,
        typer.Option("--temperature", help="0: always the likeliest token; 1: as it says.", min=0, max=100),
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option("--top-k", help="Choose among this many of the likeliest tokens; 0: all.", min=0)
    ] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same text each time.", min=0, max=(1 << 62) - 1)
    ] = None,
    path: PathName = "",
    job: Job = "",
) -> None:
    """Continue a text with the language model of the running node, or of an exported file."""
    from .commands import generate as generate_text

    chosen = random.getrandbits(62) if seed is None else seed
    request = ControlRequest(
        "generate",
        job=job,
        prompt=prompt,
        length=length,
        temperature=temperature,
        top_k=top_k,
        seed=chosen,
        path=path,
    )
    generate_text(load(flags, os.environ).options.data_dir, model, request)


@app.command()
@takes(PLACE)
def queues(
    ctx: typer.Context,
    flags: dict[str, object],
    words: Annotated[
        list[str],
        typer.Argument(
            help="add NAME=TASK[,KEY=VALUE...], pause QUEUE, resume QUEUE, or weights PART=NUMBER (convergence, "
            "complexity, length, idle).",
            metavar="CHANGE...",
        ),
    ],
    job: Job = "",
) -> None:
    """Change the queues of a run that was founded here, for all members: add a model, pause a queue, set weights."""
    from .commands import change_queues

    change_queues(load(flags, os.environ).options.data_dir, words, job)


@app.command()
@takes(PLACE)
def revert(
    ctx: typer.Context,
    flags: dict[str, object],
    peer: Annotated[str, typer.Argument(help="Its id, the end of its id, or its name.", metavar="PEER")],
    job: Job = "",
) -> None:
    """Leave a peer's deltas out of this node's weights, and show the loss before and after."""
    from .commands import revert_peer

    revert_peer(load(flags, os.environ).options.data_dir, peer, job)


@app.command()
@takes(PLACE)
def ban(
    ctx: typer.Context,
    flags: dict[str, object],
    peer: Annotated[str, typer.Argument(help="Its id, the end of its id, or its name.", metavar="PEER")],
    why: Annotated[str, typer.Option(help="What the other members get to read.", metavar="TEXT")] = "",
    job: Job = "",
) -> None:
    """Sign a veto against a peer: one of a moderator, or of most members, excludes its deltas for everybody."""
    from .commands import ban_peer

    ban_peer(load(flags, os.environ).options.data_dir, peer, why, job)


@app.command()
@takes(PLACE)
def unban(
    ctx: typer.Context,
    flags: dict[str, object],
    peer: Annotated[str, typer.Argument(help="Its id, the end of its id, or its name.", metavar="PEER")],
    job: Job = "",
) -> None:
    """Withdraw this node's veto against a peer."""
    from .commands import ban_peer

    ban_peer(load(flags, os.environ).options.data_dir, peer, "", job, lift=True)


@app.command()
@takes(PLACE)
def log(ctx: typer.Context, flags: dict[str, object], job: Job = "", json: Json = False) -> None:
    """List the merges of the running node: partners, bytes, and the loss before and after."""
    from .reports import show_log

    show_log(load(flags, os.environ).options.data_dir, json, job)


@app.command()
@takes(PLACE)
def blame(ctx: typer.Context, flags: dict[str, object], job: Job = "", json: Json = False) -> None:
    """Show whose deltas are in which layer, as far back as entries are kept."""
    from .reports import show_blame

    show_blame(load(flags, os.environ).options.data_dir, json, job)


@app.command()
@takes(PLACE)
def shards(
    ctx: typer.Context,
    flags: dict[str, object],
    shard: Annotated[
        str, typer.Argument(help="The beginning of a shard's id, to see where it has been.", metavar="[SHARD]")
    ] = "",
    job: Job = "",
    json: Json = False,
) -> None:
    """List the shards of the running node and how sure its model is of them; with SHARD, show where one has been."""
    from .reports import show_shards

    show_shards(load(flags, os.environ).options.data_dir, shard, json, job)


@app.command()
@takes(WATCHING)
def watch(
    ctx: typer.Context,
    flags: dict[str, object],
    place: Annotated[
        str, typer.Argument(help="The code of an invite, or the address of any node of the swarm.", metavar="CODE|ADDR")
    ],
) -> None:
    """Look at a swarm without taking part: its peers and how they train. Leaves nothing behind."""
    from .start import watch_and_exit

    watch_and_exit(flags, read_code_argument(place, sys.stdin))


@app.command(epilog=f"Listens at {LISTEN} by default.")
@takes(MEETING_POINT)
def bootstrap(ctx: typer.Context, flags: dict[str, object]) -> None:
    """Run a meeting point: nodes find each other through it, and those behind NAT are reached through it.

    It takes part in no run. Several of them know each other through --bootstrap.
    """
    options = as_meeting_point(load(flags, os.environ, MEETING_POINT_DIR).options)
    from .start import run_and_exit

    run_and_exit(options)


@app.command()
@takes(ALL)
def doctor(ctx: typer.Context, flags: dict[str, object], json: Json = False) -> None:
    """Check this machine and the connection to each --bootstrap, and say how to solve each problem."""
    options = load(flags, os.environ).options
    from .doctor import examine_and_print

    raise typer.Exit(examine_and_print(options, json))


@app.command()
@takes(CHECKING)
def check(
    ctx: typer.Context,
    flags: dict[str, object],
    task: Annotated[str, typer.Argument(help="A name, package.module:Class, or file.py[:Class].", metavar="TASK")],
    json: Json = False,
) -> None:
    """Try out a task, and show what is wrong with it and what training it costs."""
    given = {SETTINGS[key].field.removeprefix("train."): read_flag(key, flags[key]) for key in CHECKING if key in flags}
    from .check import check_and_print

    raise typer.Exit(check_and_print(TrainOptions(**{"device": "cpu", **given, "task": task}), json))


@app.command()
@takes(CHECKING)
def placement(
    ctx: typer.Context,
    flags: dict[str, object],
    task: Annotated[str, typer.Argument(help="A name, package.module:Class, or file.py[:Class].", metavar="TASK")],
    peers: Annotated[int, typer.Option("--peers", help="Machines like this one.", min=1, max=10_000)] = 4,
    rate: Annotated[str, typer.Option("--rate", help="Of each link, such as 100mbit.", metavar="RATE")] = "100mbit",
    latency: Annotated[str, typer.Option("--latency", help="Of each link.", metavar="TIME")] = "20ms",
    memory: Annotated[
        str, typer.Option("--memory", help="That each machine may use; a half of what is free here.", metavar="SIZE")
    ] = "",
    micro_batch: Annotated[int, typer.Option("--micro-batch", help="Samples; 0: the best.", min=0, max=64)] = 0,
    json: Json = False,
) -> None:
    """Print how a model would be divided among machines (a pipeline), and whether whole models would be faster."""
    given = {SETTINGS[key].field.removeprefix("train."): read_flag(key, flags[key]) for key in CHECKING if key in flags}
    link = (read_rate(rate), read_time(latency))
    import psutil

    room = read_size(memory) if memory else psutil.virtual_memory().available // 2
    from .placement import place_and_print

    place_and_print(TrainOptions(**{**given, "task": task}), peers, *link, room, micro_batch, json)


def main() -> None:
    """Run the program. Whatever the user or the machine got wrong is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign the terminal's encoding lacks is no reason to fail
    completes = any(word in ("--show-completion", "--install-completion") for word in sys.argv[1:])
    code = run(app, sys.argv[1:], "p2pnode" if completes else PROGRAM)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(app: typer.Typer, arguments: Sequence[str], program: str) -> int:
    """Run a command line; returns the exit code."""
    command: Any = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments), prog_name=program, standalone_mode=False, complete_var=COMPLETE)
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
        remedy = f"did you mean {near[0]}?" if near else f"see `{PROGRAM} --help`"
        return f"no such option {option[:60]}; {remedy}"
    if words.startswith("No such command"):
        wrong = words.partition("'")[2].partition("'")[0]
        known = getattr(getattr(error.ctx, "command", None), "commands", command.commands)
        near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
        address = (
            "to join through an address write --bootstrap ADDR" if wrong.startswith("/") else f"see `{PROGRAM} --help`"
        )
        return f"no such command {wrong[:60]!r}; {f'did you mean {near[0]}?' if near else address}"
    return f"{words[:1].lower()}{words[1:]}; see `{PROGRAM} --help`"
