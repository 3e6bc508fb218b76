"""Reads flags, environment and TOML file into the options of this start, and finds the default data directory."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..config.resolve import Resolved, Source, from_environment, from_flags, from_toml, resolve
from ..config.settings import PREFIX
from ..wire.errors import UsageError

CONFIG_FILE = "config.toml"
MAX_CONFIG_BYTES = 1 << 20


def load(
    flags: Mapping[str, object], environ: Mapping[str, str], program: str = "p2pnode", default: Path | None = None
) -> Resolved:
    """The options of this start, and where each came from. `flags` holds those given, by key.

    The flag `config` names the TOML file to read. When no data directory is given it is `default`, or else the user's
    one for `program`.
    """
    given = {key: value for key, value in flags.items() if key != "config"}
    strong = [from_flags(given), from_environment(environ)]
    named = flags.get("config") or environ.get(f"{PREFIX}CONFIG", "").strip()
    default = default or _default_data_dir(program)
    if named:
        return _placed(resolve([*strong, read_toml(Path(str(named)).expanduser())], default))
    first = _placed(resolve(strong, default))
    file = first.options.data_dir / CONFIG_FILE
    if not _exists(file):
        return first
    source = read_toml(file)
    if "data-dir" in source.raw:
        raise UsageError(f"{file}: data-dir cannot be set inside the data directory; use the flag, or --config FILE")
    return _placed(resolve([*strong, source], default))


def read_toml(path: Path) -> Source:
    """The settings in a TOML file; UsageError in one line when it cannot be read or understood."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise UsageError(f"{path}: a configuration has at most {MAX_CONFIG_BYTES} bytes; is it the right file?")
        return from_toml(tomllib.loads(data.decode()), str(path))
    except OSError as error:
        raise UsageError(f"cannot read the configuration {path} ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML ({str(error)[:120]}); correct that line") from None


def _placed(resolved: Resolved) -> Resolved:
    """The same with absolute paths for the data directory and the task's data."""
    options = resolved.options
    data = None if options.train.data is None else _absolute(options.train.data)
    train = replace(options.train, data=data)
    return replace(resolved, options=replace(options, data_dir=_absolute(options.data_dir), train=train))


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such user's home; write the path in full") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # whoever opens the data directory reports the problem


def _default_data_dir(program: str) -> Path:
    from platformdirs import user_data_path

    return user_data_path(program, appauthor=False)
