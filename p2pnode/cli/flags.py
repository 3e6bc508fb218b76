"""Makes command-line flags from config/settings.py, so that each setting is declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from ..config.settings import SETTINGS, SIM_SETTINGS, Setting, keys_of

F = TypeVar("F", bound=Callable[..., Any])
ALL = (*SETTINGS, "config")
PLACE = ("data-dir", "config")  # what a command about a running node needs
MEETING_POINT = ("name", *PLACE, "bootstrap", "listen", "announce", "reachability", "log-format", "quiet")
WATCHING = ("run", "join-timeout", "name", "log-format", "quiet", "dashboard", "listen", "config")
SAVED = (*PLACE, "task", "task-option", "data")  # what a command about a saved run may need as well
CHECKING = ("task-option", "data", "device")

LIMITS = keys_of("limits")

SIM: Mapping[str, Setting] = {
    **SIM_SETTINGS,
    **{
        key: SETTINGS[key]
        for key in ("task", "task-option", "data", "set", "aim", "round-seconds", "reserve", "quarantine")
    },
    "policy": replace(
        SETTINGS["policy"],
        help="How results are merged: deltaset (the default), average, gossip, diloco "
        "or an installed policy. Several, with commas, are compared.",
        metavar="NAME[,NAME…]",
    ),
    "seed": replace(
        SIM_SETTINGS["seed"],
        help="Equal seeds give equal simulations. With several the spread is shown.",
        metavar="N[,N…]",
    ),
    "split": replace(
        SETTINGS["split"], help="Deal out the data as iid (the default), parts, dirichlet:0.3 or labels:2."
    ),
    "share-data": replace(SETTINGS["share-data"], help="Samples may travel between nodes."),
}

_CONFIG = Setting(
    "config", "", str, "Read settings from this TOML file, not from config.toml in the data directory.", "FILE"
)
_PANELS = {
    "training": keys_of("train"),
    "limits": LIMITS,
    "network": keys_of("network"),
    "output": keys_of("output"),
}


def takes(keys: Iterable[str], texts: Iterable[str] = (), table: Mapping[str, Setting] = SETTINGS) -> Callable[[F], F]:
    """Give a command `f(ctx, flags, …)` one flag per key in place of `flags`, which it gets as a dict of those given.

    Flags before the subcommand count too; those after it win. Those of `texts` take any text, switches too. `table`
    says how each key is written.
    """

    def decorate(command: F) -> F:
        own = [name for name in inspect.signature(command).parameters if name not in ("ctx", "flags")]
        options = {key.replace("-", "_"): key for key in (*keys, *texts)}

        def run(ctx: typer.Context, **values: Any) -> Any:
            given = {key: values[name] for name, key in options.items() if values[name] not in (None, [], ())}
            ctx.obj = {**(ctx.obj or {}), **given}
            return command(ctx, ctx.obj, **{name: values[name] for name in own})

        signature = inspect.signature(command, eval_str=True)
        parameters = [signature.parameters["ctx"], *(_parameter(key, key in texts, table) for key in options.values())]
        parameters += [signature.parameters[name] for name in own]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run  # type: ignore[return-value]

    return decorate


def _parameter(key: str, text: bool, table: Mapping[str, Setting]) -> inspect.Parameter:
    item = _CONFIG if key == "config" else table[key]
    switch = item.switch and not text
    kind: Any = bool if switch else list[str] if item.many else str
    metavar = " " if switch else "on|off" if item.switch else item.metavar or "|".join(item.choices)
    option = typer.Option(
        f"--{key}",
        *item.aliases,
        help=item.help,
        metavar=metavar,
        rich_help_panel=next((f"Options: {panel}" for panel, keys in _PANELS.items() if key in keys), None),
        autocompletion=_completion(item.choices) if item.choices else None,
        show_default=False,
    )
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(key.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _completion(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in choices if word.startswith(incomplete)]

    return complete
