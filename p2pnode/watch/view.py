"""A swarm from Python: rows for data frames, graphs, matrices and figures, of now or of any moment seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from ..jobs.train.plan import first_plan
from ..wire.errors import UsageError
from ..wire.status import PeerState
from .graph import PeerGraph, headline
from .history import thinned, write_views
from .laptops import laptop_rows
from .queues import ownership, queue_rows
from .rows import Row, TableRows, need
from .text import clean

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

    from ..similarity.communities import Dendrogram
    from .notebook.widget import SwarmWidget
    from .similarity import Similarity

STATES = ("active", "reserve", "retired", "quarantined")  # of samples


class SwarmView:
    """Pictures of a swarm, oldest first. Methods show the latest one, or the latest not after the time `at`.

    Of a peer with several jobs they show its first one; `job` gives a view of another.
    """

    def __init__(
        self,
        pictures: Callable[[], Sequence[PeerGraph]],
        state: Callable[[], str] = lambda: "recorded",
        listeners: list[Callable[[], None]] | None = None,
    ) -> None:
        self._pictures = pictures
        self._state = state
        self._listeners = [] if listeners is None else listeners  # called after each new picture

    @property
    def pictures(self) -> Sequence[PeerGraph]:
        """All pictures there are."""
        return self._pictures()

    @property
    def state(self) -> str:
        """Whether the view is live, recorded or closed, in words."""
        return self._state()

    def job(self, name: str) -> SwarmView:
        """The same swarm with the state of one job only."""
        return SwarmView(lambda: [one.of_job(name) for one in self._pictures()], self._state, self._listeners)

    def picture(self, at: float | None = None) -> PeerGraph:
        """The latest picture, or the latest not after `at`. UsageError while there is none."""
        pictures = self.pictures
        if not pictures:
            raise UsageError("nothing has been seen of this swarm yet")
        earlier = [one for one in pictures if at is None or one.time <= at]
        return earlier[-1] if earlier else pictures[0]

    def record(self, path: str | Path, moments: int | None = None, whole: int | None = None) -> None:
        """Write what has been seen; `Swarm.replay` reads it. A file whose name ends in .zst is compressed.

        At most `moments` pictures are kept, and only `whole` of them with more than the peers.
        """
        pictures = self.pictures
        limit = len(pictures) if moments is None else moments
        write_views(path, thinned(pictures, limit, limit if whole is None else whole))

    # ---- rows: lists of dicts, with `frame()` for pandas ----

    def peers(self, at: float | None = None) -> TableRows:
        """A row for each peer."""
        return TableRows(_peer_row(peer) for peer in self.picture(at).peers)

    def exchanges(self, at: float | None = None) -> TableRows:
        """A row for each pair that exchanged."""
        return TableRows(msgspec.structs.asdict(edge) for edge in self.picture(at).exchanges)

    def shards(self, at: float | None = None) -> TableRows:
        """A row for each shard known: who holds it, its samples by state, the model's confidence, its visits."""
        rows = TableRows(msgspec.structs.asdict(shard) for shard in self.picture(at).shards)
        for row in rows:
            states, keepers, _ = row.pop("states"), row.pop("keepers"), row.pop("journey")
            row |= {state: states.get(state, 0) for state in STATES} | {"keepers": list(keepers)}
        return rows

    def communities(self, at: float | None = None) -> TableRows:
        """A row for each community, by its first member; the largest first."""
        return TableRows(
            {"community": name, **_summed(members), "circles": len({peer.job().circle for peer in members})}
            for name, members in _grouped(self.picture(at), lambda peer: peer.community)
        )

    def models(self, at: float | None = None) -> TableRows:
        """A row for each model that is trained: one for each circle, or one for the run where there are no circles."""
        picture = self.picture(at)
        plan = first_plan(picture.manifest)
        about = {"task": None if plan is None else plan.task, "parameters": None if plan is None else plan.parameters}
        circles = any(peer.job().circle for peer in picture.peers)
        groups = _grouped(picture, lambda peer: peer.job().circle if circles else "whole run")
        return TableRows({"circle": name, **about, **_summed(members)} for name, members in groups)

    def paths(self, at: float | None = None) -> TableRows:
        """The paths of a job of kind paths: who trains each, and the mean of the losses that these nodes report."""
        found: dict[str, list[dict[str, object]]] = {}
        for peer in self.picture(at).peers:
            figures: dict[str, object] = {figure.name: figure.value for figure in peer.job().figures}
            for path in str(figures.get("path", "")).split(", ") if "loss_path" in figures else ():
                found.setdefault(path, []).append({"name": peer.name, **figures})
        return TableRows(
            {
                "path": path,
                "nodes": len(own),
                "names": ", ".join(str(one["name"]) for one in own),
                "loss": _mean_of(own, "loss_path"),
                "loss_prefix": _mean_of(own, "loss_prefix"),
            }
            for path, own in sorted(found.items())
        )

    def queues(self, at: float | None = None) -> TableRows:
        """A row for each queue: owner, term, length, accuracy, and the score with its parts and their reason."""
        return queue_rows(self.picture(at))

    def ownership(self) -> TableRows:
        """A row for each time that somebody owned a queue, from when to when that was seen."""
        return ownership(self.pictures)

    def laptops(self, at: float | None = None) -> TableRows:
        """A row for each laptop of an actors job: task, return and its curve, steps, and which critic it uses."""
        return laptop_rows(self.picture(at))

    def history(self) -> TableRows:
        """A row for each peer at each moment."""
        return TableRows({"time": one.time, **_peer_row(peer)} for one in self.pictures for peer in one.peers)

    # ---- structure ----

    def graph(self, at: float | None = None) -> networkx.Graph:
        """Peers as nodes, exchanges as edges, everything known of them as attributes."""
        need("networkx")
        import networkx

        picture = self.picture(at)
        graph = networkx.Graph(time=picture.time, run=picture.run)
        for peer in picture.peers:
            graph.add_node(peer.id, **_without(_peer_row(peer), "id"))
        for edge in picture.exchanges:
            if edge.one in graph and edge.other in graph:
                graph.add_edge(edge.one, edge.other, **_without(msgspec.structs.asdict(edge), "one", "other"))
        return graph

    def similarity(self, at: float | None = None) -> Similarity:
        """How similar the models are, all against all: `peers` and `table`. Empty before fingerprints are announced."""
        from .similarity import similarity_of

        return similarity_of(self.picture(at))

    def dendrogram(self, at: float | None = None) -> Dendrogram:
        """How the models join, the most similar first."""
        from .similarity import dendrogram_of

        return dendrogram_of(self.picture(at))

    # ---- pictures ----

    def plot(self, at: float | None = None) -> Figure:
        """The peer graph: communities, circles in them, and who exchanges with whom."""
        need("matplotlib")
        from .figures.graph import plot_graph

        return plot_graph(self.picture(at))

    def plot_similarity(self, at: float | None = None) -> Figure:
        """How similar the models are: a heat map in the order of the dendrogram."""
        need("matplotlib")
        from .figures.trees import plot_similarity

        return plot_similarity(self.picture(at))

    def plot_dendrogram(self, at: float | None = None) -> Figure:
        """How the models join, and where the cut makes communities of them."""
        need("matplotlib")
        from .figures.trees import plot_dendrogram

        return plot_dendrogram(self.picture(at))

    def plot_history(self) -> Figure:
        """Loss and accuracy of all peers over time, and how many groups and peers there are."""
        need("matplotlib")
        from .figures.graph import plot_history

        return plot_history(self.pictures)

    def plot_queues(self) -> Figure:
        """Who owned which queue when."""
        need("matplotlib")
        from .figures.queues import plot_queues

        return plot_queues(self.pictures)

    def plot_laptops(self) -> Figure:
        """The returns of all laptops of an actors job over time."""
        need("matplotlib")
        from .figures.laptops import plot_laptops

        return plot_laptops(self.pictures)

    def widget(self) -> SwarmWidget:
        """The peer graph to drag, zoom and scrub in a notebook. Over a live view it follows what happens."""
        need("anywidget")
        from .notebook.widget import SwarmWidget, on_this_loop

        widget = SwarmWidget(self._pictures)
        self._listeners.append(on_this_loop(widget.refresh))
        return widget

    def __repr__(self) -> str:
        """What has been seen, in one line. Text that peers can set is cleaned."""
        pictures = self.pictures
        if not pictures:
            return f"<Swarm: {clean(self.state, 200)}>"
        manifest = pictures[-1].manifest
        run = "" if manifest is None else f"run {clean(manifest.name)!r}, "
        moments = f"{len(pictures)} moment{'' if len(pictures) == 1 else 's'} seen"
        return f"<Swarm: {run}{headline(pictures[-1])}; {moments}; {clean(self.state, 200)}>"

    def _repr_html_(self) -> str:
        """The latest picture for notebooks. Text that peers can set is escaped."""
        from .notebook.html import swarm_html

        return swarm_html(self.pictures, self.state)


def _mean_of(figures: Sequence[dict[str, object]], name: str) -> float | None:
    known = [float(value) for one in figures if isinstance(value := one.get(name), int | float)]
    return sum(known) / len(known) if known else None


def _peer_row(peer: PeerState) -> Row:
    """A peer and its state in its first job as one flat row, with a column for each figure that its kind reports."""
    state = peer.job()
    own = _without(msgspec.structs.asdict(state), "figures", "train")
    figures = {figure.name: figure.value for figure in state.figures}
    return {
        **_without(msgspec.structs.asdict(peer), "jobs"),
        **own,
        **msgspec.structs.asdict(state.training),
        **figures,
    }


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _grouped(picture: PeerGraph, name: Callable[[PeerState], str]) -> list[tuple[str, list[PeerState]]]:
    """Nodes grouped by a name, the largest group first. Nodes without that name are left out."""
    groups: dict[str, list[PeerState]] = {}
    for peer in picture.peers:
        if peer.role == "node" and name(peer):
            groups.setdefault(name(peer), []).append(peer)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))


def _summed(members: Sequence[PeerState]) -> Row:
    """How many peers, their highest round, and the medians of their losses and accuracies."""
    states = [peer.training() for peer in members]
    losses = [state.loss for state in states if state.loss is not None]
    accuracies = [state.accuracy for state in states if state.accuracy is not None]
    return {
        "peers": len(members),
        "round": max((state.round or 0 for state in states), default=0),
        "loss": median(losses) if losses else None,
        "accuracy": median(accuracies) if accuracies else None,
    }
