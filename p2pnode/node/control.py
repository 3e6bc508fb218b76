"""The control socket: how commands (`peers`, `status`, `leave`, `pause` …) reach a running node on the same machine.

A unix socket of mode 0600 in the data directory; one JSON line asks, one JSON line answers, then the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ..storage.checked import read_checked, read_or_set_aside, write_checked
from ..storage.files import DiskStorage
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import LocalProblem, UsageError
from ..wire.status import NodeStatus

POINTER = "control.path"  # in the data directory: where the socket is, if not there
MAX_SOCKET_PATH_BYTES = 100  # the system's limit is 104 to 108
MAX_REQUEST_BYTES = 1 << 16  # a prompt may be long
MAX_ANSWER_BYTES = 32 << 20  # a status tells of at most 2,000 peers
MAX_CONNECTIONS = 16
LISTEN_TRIES = 10
TIME_LIMIT = 5.0
WORK_LIMIT = 120.0  # for what has to wait for a round under way, or writes a large file

Order = Callable[[ControlRequest], Awaitable[ControlAnswer]]  # LocalProblem or UsageError when it cannot be done


logger = logging.getLogger(__name__)


class NotRunning(LocalProblem):
    """No node answers for this data directory."""


def socket_path(data_dir: Path) -> Path:
    """Where the socket of a node on `data_dir` is: in it or, when that path is too long for a socket, elsewhere.

    Elsewhere is a directory of the user's own, under the system's runtime or temporary directory; a pointer file in the
    data directory says where, so that a command with another environment finds it too.
    """
    direct = data_dir / "control.sock"
    if len(os.fsencode(direct)) <= MAX_SOCKET_PATH_BYTES:
        return direct
    with contextlib.suppress(LocalProblem):  # without the pointer it is mostly found too
        pointer = read_checked(DiskStorage(data_dir), POINTER)
        if pointer is not None:
            return Path(os.fsdecode(pointer))
    return _elsewhere(data_dir)


def _elsewhere(data_dir: Path) -> Path:
    """The same path for the same data directory, in the first place where it is short enough."""
    name = hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:16]
    roots = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()]
    paths = [Path(root, f"p2pnode-control-{os.getuid()}", f"{name}.sock") for root in roots if os.path.isdir(root)]
    short = [path for path in paths if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES]
    return short[0] if short else Path("/tmp", f"p2pnode-control-{os.getuid()}", f"{name}.sock")


class ControlServer:
    """Answers for the node that holds the data directory's lock; a socket it finds there is a dead node's."""

    def __init__(
        self,
        data_dir: Path,
        status: Callable[[], NodeStatus],
        leave: Callable[[], None],
        order: Order,
    ) -> None:
        self._data_dir = data_dir
        self._order = order
        self._status = status
        self._leave = leave
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._busy = asyncio.Semaphore(MAX_CONNECTIONS)

    async def start(self) -> None:
        """Listen; LocalProblem when the system will not have it."""
        try:
            listening = self._listen()
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise LocalProblem(f"no control socket for {self._data_dir} ({error}); try another --data-dir") from None

    def _listen(self) -> socket.socket:
        """Bind the socket. Other nodes that end remove the directory that all share, so it may vanish in between."""
        for _ in range(LISTEN_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self._path = self._prepare()
                return _bind(self._path)
        self._path = self._prepare()
        return _bind(self._path)

    def _prepare(self) -> Path:
        storage = DiskStorage(self._data_dir)
        read_or_set_aside(storage, POINTER, os.fsdecode, "it is written anew")
        for warning in storage.warnings:
            logger.warning("%s", warning)
        storage.delete(POINTER)
        path = socket_path(self._data_dir)
        if path.parent != self._data_dir:
            _own_directory(path.parent)
            write_checked(storage, POINTER, os.fsencode(path))
        path.unlink(missing_ok=True)
        return path

    async def close(self) -> None:
        """Stop answering and take the socket away."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._path is not None:
            for file in (self._path, self._data_dir / POINTER):
                with contextlib.suppress(OSError):
                    file.unlink()
            if self._path.parent != self._data_dir:
                with contextlib.suppress(OSError):
                    self._path.parent.rmdir()  # only when no other node has its socket there
            self._path = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._busy.locked():
                return
            async with self._busy, asyncio.timeout(WORK_LIMIT):
                await self._answer(reader, writer)
        except (TimeoutError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        leave = False
        try:
            async with asyncio.timeout(TIME_LIMIT):
                line = await reader.readuntil(b"\n")
            request = msgspec.json.decode(line, type=ControlRequest)
            leave = request.do == "leave"
            answer = await self._done(request)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            answer = ControlAnswer(problem=f"not a request: {str(error)[:200]}")
        except asyncio.LimitOverrunError:
            answer = ControlAnswer(problem=f"a request has at most {MAX_REQUEST_BYTES} bytes")
        except asyncio.IncompleteReadError:
            return
        writer.write(msgspec.json.encode(answer) + b"\n")
        await writer.drain()
        if leave:
            self._leave()

    async def _done(self, request: ControlRequest) -> ControlAnswer:
        if request.do == "status":
            return ControlAnswer(status=self._status())
        if request.do == "leave":
            return ControlAnswer()
        try:
            return await self._order(request)
        except (LocalProblem, UsageError) as problem:
            return ControlAnswer(problem=str(problem), refused=True)


def _bind(path: Path) -> socket.socket:
    """A bound socket that only its owner can open, at no moment anyone else."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(os.fspath(path))
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    listening.setblocking(False)
    return listening


def _own_directory(path: Path) -> None:
    """Make sure that `path` is a directory of this user alone; OSError when somebody else made it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, f"{path} is not this user's own directory")


def ask(data_dir: Path, request: ControlRequest, timeout: float = TIME_LIMIT) -> ControlAnswer:
    """Ask the node running on `data_dir`. NotRunning when there is none, LocalProblem when it does not answer well."""
    path = socket_path(data_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(msgspec.json.encode(request) + b"\n")
            answer = msgspec.json.decode(_read_line(connection), type=ControlAnswer)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise NotRunning(f"no node is running on {data_dir}; start one with `python -m p2pnode`") from None
        except TimeoutError:
            raise LocalProblem(f"the node on {data_dir} does not answer; it is busy or stuck, try again") from None
        except (OSError, msgspec.DecodeError) as error:
            raise LocalProblem(f"cannot speak with the node on {data_dir} ({error}); is it another version?") from None
    if answer.refused:
        raise LocalProblem(answer.problem)
    if answer.problem:
        raise LocalProblem(f"the node on {data_dir} refused: {answer.problem}; is it another version?")
    return answer


def _read_line(connection: socket.socket) -> bytes:
    """Up to the line's end; an answer that is too long or torn is an OSError."""
    received = bytearray()
    while not received.endswith(b"\n"):
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionError("the answer was cut off")
        received += piece
        if len(received) > MAX_ANSWER_BYTES:
            raise ConnectionError("the answer is too long")
    return bytes(received)
