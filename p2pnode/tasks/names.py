"""Which tasks need no path, and the packages they come from. Light: nothing is imported to find that out."""

from __future__ import annotations

import json
from importlib import metadata
from typing import NamedTuple

GROUP = "p2pnode.tasks"
BUILT_IN = {
    "digits": "p2pnode.tasks.digits:Digits",
    "fashion-mnist": "p2pnode.tasks.fashion_mnist:FashionMnist",
    "gpt": "p2pnode.tasks.gpt:Gpt",
}


class TaskPackage(NamedTuple):
    """The package that an installed task comes from."""

    name: str
    version: str
    install: str  # what `pip install` takes to get the same; "" where its metadata does not say


def installed() -> dict[str, str]:
    """The tasks that need no path: those built in, and entry points `p2pnode.tasks` of installed packages."""
    return {**{entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}, **BUILT_IN}


def package_of(task: str) -> TaskPackage | None:
    """The package of an installed task; None for built-in tasks and those that are not installed."""
    entries = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == task and entry.dist is not None]
    if task in BUILT_IN or not entries or entries[-1].dist is None:
        return None
    found = entries[-1].dist
    return TaskPackage(found.name, found.version, _requirement(found))


def _requirement(package: metadata.Distribution) -> str:
    """How the package was installed, as its metadata say (PEP 610); "" for one that only lies on this machine."""
    origin = package.read_text("direct_url.json")
    if origin is None:
        return f"{package.name}=={package.version}"
    try:
        said = json.loads(origin)
        url, source = str(said["url"]), said.get("vcs_info", {})
        if source:
            return f"{source['vcs']}+{url}@{source['commit_id']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return url if url.startswith("https://") else ""
