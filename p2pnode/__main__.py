"""`python -m p2pnode`, and the command `p2pnode`. Without what it needs, one line says what to run."""

from __future__ import annotations

import sys
from pathlib import Path

OLDEST = (3, 11)  # as in pyproject.toml


def main() -> None:
    """Run the command line. A Python that is too old, or a package that is missing, is one line on stderr."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"p2pnode: Python {found} is too old; run it with Python {'.'.join(map(str, OLDEST))} or newer")
    try:
        from .cli import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("p2pnode"):
            raise  # a bug of ours
        sys.exit(f"p2pnode: {missing(error.name.partition('.')[0])}")


def missing(package: str) -> str:
    """What to run when a package is missing: in a checkout the set-up, else pip."""
    checkout = Path(__file__).parent.parent
    if (checkout / "Makefile").exists() and (checkout / "pyproject.toml").exists():
        place = "" if checkout == Path.cwd() else f" in {checkout}"
        return (
            f"the package {package} is missing; run `make setup`{place} and then `.venv/bin/python -m p2pnode` "
            "(or `pip install .` in an environment of your own)"
        )
    return f"the package {package} is missing; run `{sys.executable} -m pip install {package}`"


if __name__ == "__main__":
    main()
