"""`p2pnode sim`: a whole swarm on virtual time from the command line, with a progress bar, a table and a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..config.resolve import read_flag
from ..wire.errors import UsageError


def sim(
    peers: Annotated[int, typer.Option(help="How many nodes.")] = 16,
    task: Annotated[str, typer.Option(help="What they learn: a name, package.module:Class, file.py.")] = "digits",
    option: Annotated[
        list[str] | None, typer.Option("--task-option", help="Set an option of the task.", metavar="KEY=VALUE")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Where the task's data are.", metavar="PATH")] = None,
    split: Annotated[str, typer.Option(help="iid, parts, dirichlet:ALPHA or labels:K.")] = "iid",
    rounds: Annotated[int, typer.Option(help="Until every node has done so many.")] = 50,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal simulations.")] = 0,
    churn: Annotated[float, typer.Option(help="Share of nodes that crash and come back.")] = 0.0,
    speeds: Annotated[str, typer.Option(help="Nodes are so many times as fast as a slow one.")] = "1",
    latency: Annotated[str, typer.Option(help="Of each message.")] = "50ms",
    rate: Annotated[str | None, typer.Option(help="What a node can send, as in 20mbit.")] = None,
    loss: Annotated[float, typer.Option(help="Share of messages lost.")] = 0.0,
    aim: Annotated[str, typer.Option(help="shared: one model for all; own: each community's own.")] = "shared",
    circle: Annotated[
        int, typer.Option(help="Declare circles of so many; without it, they are found by themselves.")
    ] = 0,
    policy: Annotated[str, typer.Option(help="How weights are merged.")] = "deltaset",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a number of the policy or of the choice of partners.", metavar="KEY=VALUE"),
    ] = None,
    share_data: Annotated[bool, typer.Option("--share-data", help="Samples travel between nodes as well.")] = False,
    alone: Annotated[int, typer.Option(help="Nodes to train alone too, for comparison.")] = 4,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
    record: Annotated[str | None, typer.Option(help="Write all that happens, JSON lines.", metavar="FILE")] = None,
    picture: Annotated[str | None, typer.Option(help="Draw the curves.", metavar="FILE.png")] = None,
) -> None:
    """Simulate a swarm that learns: the same node on virtual time, with real training and charged links."""
    from ..simulate import SIMULATED, simulate
    from ..simulate.report import draw, progress_bar, show
    from .reports import print_json

    if picture is not None:
        _check_picture(picture)
    with progress_bar(quiet=json) as told:
        result = simulate(
            peers,
            task=replace(
                SIMULATED,
                task=task,
                task_options=read_flag("task-option", option or []),
                data=None if data is None else Path(data),
            ),
            split=split,
            rounds=rounds,
            seed=seed,
            latency=latency,
            rate=rate,
            loss=_share(loss, "--loss"),
            churn=churn,
            speeds=speeds,
            circle=circle,
            aim=read_flag("aim", aim),
            policy=policy,
            settings=read_flag("set", settings or []),
            share_data=share_data,
            record=record,
            alone=max(0, alone),
            progress=told,
        )
    if picture is not None:
        draw(result, picture, f"{peers} nodes learn {task}, {split}, {policy}, seed {seed}")
    if json:
        print_json({**result.facts(), "nodes": result.summaries})
    else:
        show(result)


def _check_picture(path: str) -> None:
    from ..simulate.report import can_draw

    if not can_draw():
        raise UsageError("--picture needs matplotlib: pip install matplotlib, or leave --picture out")
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"--picture {path}: there is no directory {Path(path).parent}")


def _share(value: float, flag: str) -> float:
    if not 0.0 <= value < 1.0:
        raise UsageError(f"{flag} {value:g} is no share; it lies between 0 and 1")
    return value
