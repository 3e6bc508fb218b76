"""What `doctor` looks at on this machine without touching the network: Python, torch, hivemind, ports, disk."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from ..config.options import Config
from ..network.libp2p.daemon import HIVEMIND, find_p2pd
from ..network.libp2p.ports import PortLease
from ..node.control import ControlRequest, ask
from ..storage.datadir import IDENTITY_FILE
from ..wire.errors import LocalProblem
from ..wire.ids import Identity
from ..wire.status import NodeStatus

CheckLevel = Literal["ok", "warning", "problem"]
OLDEST_PYTHON = (3, 11)
TORCH_LIMIT = 60.0
LITTLE_BYTES = 1 << 30
TOO_LITTLE_BYTES = 100 << 20

# In a process of its own: a broken torch may hang or crash.
_ASK_TORCH = """
import json, torch
mps = getattr(torch.backends, "mps", None)
cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
print(json.dumps({"version": torch.__version__, "cuda": cuda, "mps": bool(mps and mps.is_available())}))
"""


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor's report. A problem or warning says what to do about it."""

    check: str
    verdict: CheckLevel
    text: str
    remedy: str = ""


def check_python() -> Finding:
    words = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("python", "problem", f"{words} is too old", "install Python 3.11 or newer")
    if sys.platform not in ("linux", "darwin"):
        return Finding("python", "problem", f"{words} is not supported", "use Linux or macOS; on Windows use WSL2")
    return Finding("python", "ok", words)


async def check_torch() -> Finding:
    """The version and what it can compute on; its absence hinders training, not meeting."""
    if _version("torch") is None:
        return Finding("torch", "warning", "not installed; the node can meet others but not train", "pip install torch")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _ASK_TORCH,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TORCH_LIMIT):
            out, complaint = await process.communicate()
        return _torch_finding(json.loads(out.decode().splitlines()[-1]))
    except TimeoutError:
        return Finding("torch", "problem", f"does not load within {TORCH_LIMIT:.0f} s", _reinstall("torch"))
    except (ValueError, IndexError):
        last = (complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return Finding("torch", "problem", f"does not load ({last[:200]})", _reinstall("torch"))
    finally:
        if process.returncode is None:
            process.kill()


def _torch_finding(said: Mapping[str, object]) -> Finding:
    device = f"CUDA ({said['cuda']})" if said["cuda"] else "MPS" if said["mps"] else "CPU only (no CUDA, no MPS)"
    return Finding("torch", "ok", f"{said['version']}, {device}")


def check_hivemind() -> Finding:
    version = _version("hivemind")
    if version is None:
        return Finding("hivemind", "problem", "not installed", f"pip install {HIVEMIND}")
    try:
        binary = find_p2pd()
    except LocalProblem as problem:
        return Finding("hivemind", "problem", str(problem), _reinstall(HIVEMIND))
    if not os.access(binary, os.X_OK):
        return Finding("hivemind", "problem", f"{binary} cannot be run", _reinstall(HIVEMIND))
    if f"hivemind=={version}" != HIVEMIND:
        return Finding("hivemind", "warning", f"{version}; {HIVEMIND} is tested", f"pip install {HIVEMIND}")
    return Finding("hivemind", "ok", version)


def running_node(config: Config) -> NodeStatus | None:
    """The node that runs on the data directory now, if one answers."""
    try:
        return ask(config.data_dir, ControlRequest("status"), timeout=2.0).status
    except LocalProblem:
        return None


def check_port(config: Config, running: NodeStatus | None) -> Finding:
    """Whether the ports asked for are free; a node of our own that has them is fine."""
    if config.network.no_listen:
        return Finding("port", "ok", "none needed: --no-listen")
    listen = config.network.listen or ("/ip4/0.0.0.0/tcp/0",)
    try:
        PortLease(listen).release()
    except LocalProblem as problem:
        if running is not None:
            return Finding("port", "ok", f"taken by the node {running.name!a} that runs on {config.data_dir}")
        what, _, remedy = str(problem).partition("; ")
        return Finding("port", "problem", what, remedy or "give another with --listen")
    given = ", ".join(config.network.listen)
    return Finding("port", "ok", f"{given} can be used" if given else "any free one will be used")


def check_disk(config: Config, running: NodeStatus | None) -> Finding:
    """The data directory as the node would use it; nothing is created that stays."""
    place = _nearest_existing(config.data_dir)
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        words = f"{place} cannot be written ({error.strerror})"
        return Finding("disk", "problem", words, "mend its rights, or choose another --data-dir")
    damage = _identity_damage(config.data_dir / IDENTITY_FILE)
    if damage:
        return Finding("disk", "problem", damage, "restore it from a copy, or move it away for a new identity")
    used = f"; the node {running.name!a} runs on it" if running is not None else ""
    words = f"{free / 1e9:.1f} GB free for {config.data_dir}{used}"
    if free < LITTLE_BYTES:
        verdict: CheckLevel = "problem" if free < TOO_LITTLE_BYTES else "warning"
        return Finding("disk", verdict, words, "make room, or choose another --data-dir")
    return Finding("disk", "ok", words)


def _nearest_existing(path: Path) -> Path:
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _identity_damage(path: Path) -> str:
    try:
        Identity.from_key_file(path.read_bytes())
    except FileNotFoundError:
        return ""
    except (ValueError, OSError) as error:
        return f"{path} is damaged ({error})"
    return ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _reinstall(package: str) -> str:
    return f"pip install --force-reinstall --no-deps {package}"
