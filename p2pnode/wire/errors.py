"""Every error p2pnode raises on purpose, and whose fault it is.

    P2pnodeError
    ├── UsageError          the user's: one line, exit code 2
    ├── LocalProblem        this machine's (port, disk, daemon): one line, exit code 1
    │   ├── NetworkDown     our own daemon is not there right now; it is being replaced
    │   ├── TaskProblem     the task's own code raised, or broke its contract
    │   └── Diverged        a loss, gradient or weight left what can be computed and shared
    └── PeerError           a peer's, or the way to it
        ├── PeerUnreachable it could not be reached
        ├── PeerTimeout     it did not answer in time, or too slowly
        ├── PeerRefused     it answered, and said no
        └── PeerMisbehaved  it broke the protocol; counts against its reputation

Anything else that escapes is a bug and may crash the process.
"""

import difflib
from collections.abc import Iterable


class P2pnodeError(Exception):
    """Base of the tree above."""


class UsageError(P2pnodeError):
    """Wrong input from the user; the message says what is wrong and what to do."""

    exit_code = 2


class LocalProblem(P2pnodeError):
    """Something is wrong on this machine; the message says what to do."""

    exit_code = 1


class Damaged(LocalProblem):
    """A file of the data directory is not as it was written; the message names it."""


class NetworkDown(LocalProblem):
    """The node's own daemon is gone or being replaced; try again shortly."""


class TaskProblem(LocalProblem):
    """A method of a Task raised, or returned something its contract forbids; the message names method and error."""


class Diverged(LocalProblem):
    """Training met a loss, gradient or weight out of bounds. The weights it started from are still good.

    `steps` local steps had been fine before it; `loss` is what came out (maybe NaN).
    """

    def __init__(self, reason: str, steps: int, loss: float) -> None:
        super().__init__(reason)
        self.steps = steps
        self.loss = loss

    def __reduce__(self) -> tuple[type, tuple[str, int, float]]:
        """So that it can pass between processes."""
        return Diverged, (str(self), self.steps, self.loss)


class PeerError(P2pnodeError):
    """Something about one peer; the node goes on."""


class PeerUnreachable(PeerError):
    """No way to the peer was found."""


class PeerTimeout(PeerError):
    """The peer did not answer in time, or sent below the minimum rate."""


class PeerRefused(PeerError):
    """The peer answered that it will not."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(f"{code}: {reason}" if reason else code)
        self.code = code
        self.reason = reason


class PeerMisbehaved(PeerError):
    """The peer sent something the protocol forbids."""


def unwrap(error: BaseException) -> BaseException:
    """The one error inside task groups; the group itself where there are several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the closest known name, or the list of all."""
    names = sorted(known)
    return near(word, names).removeprefix("; ") or f"known are {', '.join(names) or 'none'}"


def near(word: str, known: Iterable[str]) -> str:
    """Return the closest known name to a misspelt one as "; did you mean 'x'?", or "" where none is close."""
    found = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
