"""Everything a node reports: the kinds of events, the latest of them, and listeners (terminal, log, tests)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from ..network.base import Clock
from ..wire.status import NodeEvent

Kind = Literal[
    "started",
    "lan",
    "founded",
    "joined",
    "resumed",
    "starting",
    "connected",
    "alone",
    "searching",
    "network down",
    "leaving",
    "left",
    "peer joined",
    "peer left",
    "peer silent",
    "peer back",
    "peer gone",
    "peer ignored",
    "learning",
    "resumed learning",
    "caught up",
    "waiting",
    "progress",
    "sample",
    "done",
    "job ended",
    "paused",
    "working",
    "slowed",
    "settling",
    "circle",
    "snapshot",
    "reverted",
    "banned",
    "shards",
    "received",
    "shipped",
    "quarantined",
    "swap",
    "handing over",
    "queue",
    "path",
    "pipeline",
    "expert",
    "critic",
    "state",
    "data directory",
    "task",
    "data",
    "page open",
    "damaged",
    "clock",
    "disk",
    "diverged",
    "fingerprint",
    "model",
    "refused",
]

KINDS: dict[Kind, str] = {
    "started": "The network is up; who this node is.",
    "lan": "Whether others in the local network can see this run.",
    "founded": "A new run was founded here.",
    "joined": "A run was joined through somebody.",
    "resumed": "The run saved in the data directory goes on.",
    "starting": "Condition: the network is coming up.",
    "connected": "Condition: a remote peer answered lately.",
    "alone": "Condition: nobody else is known.",
    "searching": "Condition: others are known or sought, and none answers; a warning when some did before.",
    "network down": "Condition: the libp2p daemon is being replaced.",
    "leaving": "Condition: the node says goodbye.",
    "left": "The node has left; the last event.",
    "peer joined": "A peer was met for the first time: it answered, or called.",
    "peer left": "A peer said goodbye.",
    "peer silent": "A peer does not answer any more.",
    "peer back": "A silent peer answers again.",
    "peer gone": "A silent peer was given up.",
    "peer ignored": "A peer violated the protocol too often; its requests are refused for a while.",
    "learning": "Learning begins at the run's first weights.",
    "resumed learning": "Learning goes on from what was saved.",
    "caught up": "Weights were taken over from others.",
    "waiting": "No member gives its weights, and there is no other way in.",
    "progress": "Round, loss and accuracy, every half minute at the most.",
    "sample": "A text that a language model in training writes, every two minutes at the most.",
    "done": "The goal of --until is reached; the node leaves.",
    "job ended": "One of several jobs reached its goal or failed, and why; the others go on.",
    "paused": "The node rests, and why: the user, the schedule, the battery, others at the machine.",
    "working": "The node works again.",
    "slowed": "The run has converged; the node rests between rounds until members, data or losses change.",
    "settling": "All members lower their learning rate for a while, because the user of this node exports the model.",
    "circle": "The node moved to another circle, or could not.",
    "snapshot": "A snapshot was doubtful or not taken, or weights differ from a partner's.",
    "reverted": "A peer's entries were left out of the weights, as ordered.",
    "banned": "Members want an author excluded, or it is excluded now, and why.",
    "shards": "Shards were found deleted or damaged on disk, or cannot be trained on.",
    "received": "A shard came, and what the model made of it before training on it.",
    "shipped": "A shard was passed on: to which peer, and why.",
    "quarantined": "Samples get no weight here: models with work of other peers fail at them (`--quarantine`).",
    "swap": "Two nodes train each other's model on their own data, or do not, with the reason.",
    "handing over": "Before leaving, shards that are only here go to others.",
    "critic": "The critic of an `actors` job has another owner, or a laptop uses another critic, and why.",
    "path": "The node trains another path, and why, or keeps a copy of one.",
    "pipeline": "The node serves other blocks of the model, and why; or a driver waits for a server or leaves one out.",
    "expert": "An expert was added to the run's paths or withdrawn.",
    "queue": "A queue has another owner, steps of a replaced owner were taken back, "
    "a model was added or is not trained here.",
    "state": "Saved progress was damaged or cannot be used.",
    "data directory": "The usual data directory is in use, so this node has another one.",
    "page open": "The page listens on the network; the link with which others can read it.",
    "data": "Samples of the task's data cannot be read and are left out.",
    "task": "What those who join need for the run's task, or which file of the task runs here.",
    "damaged": "A file of the data directory was damaged: what is lost by that, and where it is kept.",
    "clock": "This machine's clock is off the swarm's.",
    "disk": "Something could not be written.",
    "diverged": "A round's numbers went out of bounds; it was taken back.",
    "fingerprint": "The model's fingerprint could not be taken, or cannot be compared with those of others.",
    "model": "A partner's model computes something else than this node's at equal weights.",
    "refused": "A round's delta broke the run's own rules and stays here.",
}

SHOWN: dict[str, str] = {  # reported by the view, not by the node
    "invite": "The command that lets a friend join; whenever it changes. Of a private run not in /api/view or a log.",
    "private": "Instead of `invite` where the run is private and the output is no terminal: how to see the invite.",
    "address": "A meeting point's address, instead of an invite.",
    "page": "Where the page is, with its token.",
    "log": "A warning or an error logged by a part of the program.",
}

KEPT = 200
KEPT_WARNINGS = 8  # that stay to be seen when newer events have pushed them out


class Events:
    """The events of one node. Listeners are called at once and must not raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[NodeEvent] = deque(maxlen=KEPT)
        self._warnings: deque[NodeEvent] = deque(maxlen=KEPT_WARNINGS)
        self._listeners: list[Callable[[NodeEvent], None]] = []

    def listen(self, listener: Callable[[NodeEvent], None]) -> None:
        self._listeners.append(listener)

    def say(self, kind: Kind, text: str, *, warning: bool = False) -> None:
        event = NodeEvent(self._clock.time(), kind, text, warning)
        self._kept.append(event)
        if warning:
            self._warnings.append(event)
        for listener in self._listeners:
            listener(event)

    def about(self, job: str) -> Events:
        """The same diary for one of several jobs: its name stands before each text."""
        return JobEvents(self, self._clock, job)

    def latest(self, count: int = 20) -> tuple[NodeEvent, ...]:
        """The latest events, oldest first, and before them the latest warnings that are older."""
        recent = tuple(self._kept)[-count:]
        return (*(warning for warning in self._warnings if warning not in recent), *recent)


class JobEvents(Events):
    """What one of several jobs writes into the node's diary."""

    def __init__(self, diary: Events, clock: Clock, job: str) -> None:
        super().__init__(clock)
        self._diary = diary
        self._job = job

    def say(self, kind: Kind, text: str, *, warning: bool = False) -> None:
        self._diary.say(kind, f"{self._job}: {text}", warning=warning)

    def latest(self, count: int = 20) -> tuple[NodeEvent, ...]:
        return self._diary.latest(count)
