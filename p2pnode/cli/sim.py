"""`sim`: whole swarms on virtual time from the command line, one or several compared."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..config.options import DEFAULT_POLICY, DEFAULT_TASK
from ..config.resolve import read_flag
from ..wire.errors import UsageError
from .flags import SIM, takes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..watch.rows import TableRows

FORMATS = (".svg", ".png", ".pdf")


@takes(SIM, table=SIM)
def sim(
    ctx: typer.Context,
    flags: dict[str, object],
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
    csv: Annotated[
        str | None, typer.Option(help="Write a row per round of each node, or per policy compared.", metavar="FILE")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(help="Draw the curves, with bands over several seeds.", metavar="FILE.svg|png")
    ] = None,
    record: Annotated[str | None, typer.Option(help="Write what happens as JSON lines.", metavar="FILE")] = None,
) -> None:
    """Simulate a swarm that trains: the same node on virtual time, with real training and charged links.

    Several policies or seeds, with commas, are compared: --policy deltaset,gossip --seed 1,2,3.
    """
    _check_files(csv, plot)
    given = {item.field.rpartition(".")[2]: flags[key] for key, item in SIM.items() if key in flags}
    task = read_flag("task", given.pop("task", DEFAULT_TASK))
    from ..simulate.comparison import run_comparison
    from ..simulate.report import progress_bar, show, show_comparison
    from ..simulate.run import run_scenario
    from ..simulate.scenario import read_scenario
    from .reports import print_json

    policies, seeds = _listed("policy", given.get("policy", DEFAULT_POLICY)), _listed("seed", given.get("seed", "0"))
    pairs = list(product(policies, seeds))
    if len(pairs) > 1:
        given = {"alone": 0, **given}  # a comparison does not show what nodes reach alone
    several = [{**given, "policy": policy, "seed": seed} for policy, seed in pairs]
    scenarios = [read_scenario(values, task, label=lambda item: f"--{item.key}") for values in several]
    if len(scenarios) == 1:
        with progress_bar(lines=False) as progress:
            result = run_scenario(scenarios[0], record, lambda share, now: progress(share, f"virtual {now:.0f} s"))
        _write(result.rows, csv, result.plot, plot)
        print_json({**result.summary(), "nodes": result.nodes}) if json else show(result)
        return
    if record is not None:
        raise UsageError("--record is for one simulation; give one policy and one seed, or leave --record out")
    with progress_bar(lines=True) as progress:
        compared = run_comparison(scenarios, progress)
    _write(compared.table, csv, compared.plot, plot)
    print_json({"policies": compared.table(), "simulations": compared.rows()}) if json else show_comparison(compared)


def _listed(key: str, given: object) -> list[str]:
    """The words of a list with commas; UsageError where one is missing or named twice."""
    words = [word.strip() for word in str(given).split(",")]
    twice = [word for place, word in enumerate(words) if word in words[:place]]
    if "" in words:
        raise UsageError(f"--{key}: a name is missing in {given!r}")
    if twice:
        raise UsageError(f"--{key}: {twice[0]} is named twice")
    return words


def _check_files(csv: str | None, plot: str | None) -> None:
    """UsageError before anything runs when a file cannot be written."""
    if plot is not None:
        if Path(plot).suffix.lower() not in FORMATS:
            raise UsageError(f"--plot {plot}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
        if find_spec("matplotlib") is None:
            raise UsageError("--plot needs matplotlib: pip install matplotlib, or leave --plot out")
    for flag, path in (("csv", csv), ("plot", plot)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"--{flag} {path}: there is no directory {Path(path).parent}")
        if path is not None and Path(path).is_dir():
            raise UsageError(f"--{flag} {path} is a directory; name a file")


def _write(rows: Callable[[], TableRows], csv: str | None, draw: Callable[[], Figure], plot: str | None) -> None:
    """Write the files that are asked for."""
    from ..simulate.report import write_csv

    if csv is not None:
        write_csv(csv, rows())
    if plot is not None:
        from ..simulate.figures import save

        save(draw(), plot)
