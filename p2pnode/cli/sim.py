"""`sim`: a whole swarm on virtual time from the command line, with a progress bar, a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config.options import DEFAULT_TASK
from ..config.resolve import read_simulation
from ..wire.errors import UsageError
from .flags import SIM, takes


@takes(SIM, table=SIM)
def sim(
    ctx: typer.Context,
    flags: dict[str, object],
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
    record: Annotated[str | None, typer.Option(help="Write what happens as JSON lines.", metavar="FILE")] = None,
    picture: Annotated[str | None, typer.Option(help="Draw the curves.", metavar="FILE.png")] = None,
) -> None:
    """Simulate a swarm that trains: the same node on virtual time, with real training and charged links."""
    given = {item.field.rpartition(".")[2]: flags[key] for key, item in SIM.items() if key in flags}
    options, train = read_simulation(given, lambda item: f"--{item.key}")
    from ..simulate import make_scenario, run_scenario
    from ..simulate.report import draw, progress_bar, show
    from ..simulate.scenario import training_of
    from .reports import print_json

    if picture is not None:
        _check_picture(picture)
    training = training_of(train.pop("task", DEFAULT_TASK), train, options)
    with progress_bar(quiet=json) as progress:
        result = run_scenario(make_scenario(options, training), record, progress)
    if picture is not None:
        draw(
            result,
            picture,
            f"{options.peers} nodes train {training.options.task}, {training.split}, seed {options.seed}",
        )
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
