"""`doctor`: tries everything a node needs, and says how to solve each problem."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import platform
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from ..config.options import Options
from ..discovery.swarm_time import FAR_OFF
from ..network.base import Payload
from ..network.libp2p.daemon import HIVEMIND, find_p2pd
from ..network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from ..network.libp2p.ports import PortLease
from ..node.control import ask
from ..node.event_loop import run_loop
from ..node.joining import load_saved
from ..storage.datadir import IDENTITY_FILE
from ..storage.files import DiskStorage, write_whole
from ..watch.text import clean, one_line
from ..wire.addresses import Address, host_and_port, parse_address
from ..wire.control import ControlRequest
from ..wire.envelope import seal
from ..wire.errors import LocalProblem, PeerError, PeerMisbehaved, PeerRefused, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import Ping, Pong, decode_answer
from ..wire.status import NodeStatus
from .ending import INTERRUPTED
from .reports import print_json

CheckLevel = Literal["ok", "warning", "problem", "unchecked"]
OLDEST_PYTHON = (3, 11)
TORCH_LIMIT = 300.0  # usually 2 s; on an overloaded machine minutes
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
    """One line of a report. A problem or warning says what to do about it; `unchecked` means that nobody knows."""

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
    """Checks torch's version and devices. A node without torch can meet others but not train."""
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
        remedy = f"is the machine overloaded? If not: {_reinstall('torch')}"
        return Finding("torch", "problem", f"does not load within {TORCH_LIMIT:.0f} s", remedy)
    except (ValueError, IndexError):
        last = (complaint.decode(errors="replace").strip().splitlines() or ["without a message"])[-1]
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


def running_node(options: Options) -> NodeStatus | None:
    """The node that runs on the data directory now, if one answers."""
    try:
        return ask(options.data_dir, ControlRequest("status"), timeout=2.0).status
    except LocalProblem:
        return None


def check_port(options: Options, running: NodeStatus | None) -> Finding:
    """Checks that the ports are free, or taken by the node that runs on this data directory."""
    if options.network.no_listen:
        return Finding("port", "ok", "none needed: --no-listen")
    listen = options.network.listen or ("/ip4/0.0.0.0/tcp/0",)
    try:
        PortLease(listen).release()
    except LocalProblem as problem:
        if running is not None:
            return Finding("port", "ok", f"taken by the node {running.name!a} that runs on {options.data_dir}")
        what, _, remedy = str(problem).partition("; ")
        return Finding("port", "problem", what, remedy or "give another with --listen")
    given = ", ".join(options.network.listen)
    return Finding("port", "ok", f"{given} can be used" if given else "any free one will be used")


def check_disk(options: Options, running: NodeStatus | None) -> Finding:
    """Checks that the data directory can be written and has room. Leaves nothing behind."""
    place = _nearest_existing(options.data_dir)
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        words = f"{place} cannot be written ({error.strerror})"
        return Finding("disk", "problem", words, "mend its rights, or choose another --data-dir")
    damage = _identity_damage(options.data_dir / IDENTITY_FILE)
    if damage:
        return Finding("disk", "problem", damage, "restore it from a copy, or move it away for a new identity")
    used = f"; the node {running.name!a} runs on it" if running is not None else ""
    words = f"{free / 1e9:.1f} GB free for {options.data_dir}{used}"
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


START_LIMIT = 300.0  # the first import of hivemind is slow on a cold disk, or on an overloaded machine
CONTACT_LIMIT = 10.0
MARKS = {"ok": "32", "warning": "33", "problem": "31", "unchecked": "2"}


def examine_and_print(options: Options, as_json: bool) -> int:
    """Examine, print, and return the exit code: 1 when there is a problem. What was not checked is none."""
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is no finding
    logging.captureWarnings(True)
    findings = run_loop(_interruptible(options))
    if findings is None:
        return INTERRUPTED
    healthy = all(finding.verdict != "problem" for finding in findings)
    if as_json:
        print_json({"ok": healthy, "checks": findings})
    else:
        print("\n".join(finding_line(finding) for finding in findings))
    return 0 if healthy else 1


def finding_line(finding: Finding) -> str:
    """One line of a report: the verdict, what was looked at, what was found and what to do."""
    text = clean(one_line(finding.text), 600) + (f"; {one_line(finding.remedy)}" if finding.remedy else "")
    return f"{_coloured(finding.verdict)} {finding.check:<13} {text}"


def _coloured(verdict: str) -> str:
    from rich.console import Console

    padded = f"{verdict:<9}"
    console = Console()
    coloured = sys.stdout.isatty() and console.color_system is not None and not console.no_color
    return f"\x1b[{MARKS[verdict]}m{padded}\x1b[0m" if coloured else padded


async def _interruptible(options: Options) -> list[Finding] | None:
    """The findings, or None after Ctrl-C, which leaves no daemon behind."""
    work = asyncio.create_task(examine(options))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return None


async def examine(options: Options) -> list[Finding]:
    """All findings, in the order in which people read them."""
    running = await asyncio.to_thread(running_node, options)
    torch, network = await asyncio.gather(check_torch(), check_network(options))
    machine = [check_python(), torch, check_hivemind(), network[0], check_port(options, running)]
    return [*machine, check_disk(options, running), *network[1:]]


async def check_network(options: Options) -> list[Finding]:
    """Checks daemon, clock, reachability and each bootstrap, with a temporary daemon and identity."""
    begun = time.monotonic()
    try:
        async with _throwaway_network(options) as network:
            started = Finding("daemon", "ok", f"p2pd and hivemind come up in {time.monotonic() - begun:.1f} s")
            reachable = _reachability(options, await network.addresses())
            visits = await asyncio.gather(*(_visit(network, address) for address in _bootstrap(options)))
    except TimeoutError:
        return _without_daemon(f"p2pd does not start within {START_LIMIT:.0f} s", "is the machine overloaded?")
    except LocalProblem as problem:
        what, _, remedy = str(problem).partition("; ")
        return _without_daemon(what, remedy or "try again")
    except Exception as error:  # an import that fails can raise anything, and that is what is to be found here
        return _without_daemon(f"p2pd cannot be used ({type(error).__name__}: {error})", "reinstall p2pnode")
    findings = [visit.finding for visit in visits]
    nobody = Finding("bootstrap", "unchecked", "none given; this node would found a run, or go on with its own")
    return [started, _clock(visits), reachable, *(findings or [nobody])]


def _without_daemon(what: str, remedy: str) -> list[Finding]:
    rest = ("clock", "reachability", "bootstrap")
    later = [Finding(check, "unchecked", "it needs the daemon", "mend the daemon first") for check in rest]
    return [Finding("daemon", "problem", what, remedy), *later]


@contextlib.asynccontextmanager
async def _throwaway_network(options: Options) -> AsyncIterator[HivemindNetwork]:
    """A started network that listens where the node would, on any free port; removed afterwards."""
    identity = Identity(secrets.token_bytes(32))
    with tempfile.TemporaryDirectory(prefix="p2pnode-doctor-") as scratch:
        key_file = Path(scratch, "identity.key")
        write_whole(key_file, identity.to_key_file())
        daemon = HivemindOptions(
            data_dir=Path(scratch),
            key_file=key_file,
            listen=tuple(_any_port(text) for text in options.network.listen) or ("/ip4/0.0.0.0/tcp/0",),
            no_listen=options.network.no_listen,
            reachability=options.network.reachability,
        )
        network = HivemindNetwork(identity, daemon)
        try:
            async with asyncio.timeout(START_LIMIT):
                await network.start(_Nobody())
            yield network
        finally:
            await network.close()


def _any_port(listen: str) -> str:
    parts = listen.split("/")
    return "/".join([*parts[:4], "0", *parts[5:]]) if host_and_port(listen) is not None else listen


class _Nobody:
    """A server that serves nothing: the doctor only asks."""

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        raise PeerRefused("unknown", "only examining")

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        raise PeerRefused("unknown", "only examining")

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        pass


def _bootstrap(options: Options) -> tuple[Address, ...]:
    """The addresses given, else those the saved run was joined through."""
    if options.run.bootstrap:
        return options.run.bootstrap
    with contextlib.suppress(LocalProblem, UsageError):
        saved = load_saved(DiskStorage(options.data_dir))
        return tuple(parse_address(text) for text in saved.bootstrap) if saved is not None else ()
    return ()


@dataclass(frozen=True)
class _Visit:
    finding: Finding
    clock_offset: float | None = None  # the peer's time minus ours


async def _visit(network: HivemindNetwork, address: Address) -> _Visit:
    """Contact one bootstrap and ask its time."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(CONTACT_LIMIT * 2):
            await network.contact(address, CONTACT_LIMIT)
            sent = time.monotonic()
            pong = decode_answer(await network.call(address.peer, seal(Ping()), CONTACT_LIMIT), Pong)
    except PeerMisbehaved as fault:
        return _Visit(Finding("bootstrap", "problem", f"{address}: {fault}", "ask for the address again"))
    except (PeerError, LocalProblem, TimeoutError) as error:
        remedy = "check that it runs, that the address is right, and that no firewall is in the way"
        return _Visit(Finding("bootstrap", "problem", f"{address}: {error or 'no answer'}", remedy))
    round_trip = time.monotonic() - sent
    words = f"{address} answers (contact {sent - begun:.1f} s, call {round_trip * 1000:.0f} ms)"
    return _Visit(Finding("bootstrap", "ok", words), pong.time + round_trip / 2 - time.time())


def _clock(visits: list[_Visit]) -> Finding:
    offsets = sorted(visit.clock_offset for visit in visits if visit.clock_offset is not None)
    if not offsets:
        return Finding("clock", "unchecked", "no bootstrap to compare it with", "give one with --bootstrap ADDR")
    offset = offsets[len(offsets) // 2]
    words = f"{abs(offset):.1f} s {'behind' if offset > 0 else 'ahead of'} the swarm's time"
    if abs(offset) < FAR_OFF:
        return Finding("clock", "ok", words)
    return Finding("clock", "warning", f"{words}; the node allows for it", "set the clock: timedatectl set-ntp true")


def _reachability(options: Options, addresses: tuple[str, ...]) -> Finding:
    """Checks which addresses the node would announce, and what that means for others."""
    chosen = options.network
    if chosen.announce:
        words = f"announces {', '.join(chosen.announce)} as configured, which cannot be tried from inside"
        return Finding("reachability", "unchecked", words)
    if chosen.no_listen:
        words = "does not listen; others reach it through relays, which was not tried"
        return Finding("reachability", "unchecked", words)
    places = [place for place in map(host_and_port, addresses) if place is not None]
    hosts = [ipaddress.ip_address(place[0]) for place in places]
    shown = ", ".join(dict.fromkeys(str(host) for host in hosts)) or "no address"
    if any(host.is_global for host in hosts):
        words = f"has a public address ({shown}); whether its port is open cannot be tried from inside"
        return Finding("reachability", "unchecked", words, "keep it open in the firewall")
    if all(host.is_loopback for host in hosts):
        remedy = "listen on 0.0.0.0 to be reached from elsewhere"
        return Finding("reachability", "warning", f"only this machine can dial it ({shown})", remedy)
    remedy = "to be dialled directly, forward a port to this machine and name it with --listen PORT --announce ADDR"
    words = f"local addresses only ({shown}); whether relays or hole punching reach it from outside was not tried"
    return Finding("reachability", "unchecked", words, remedy)
