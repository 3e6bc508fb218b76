"""How alike the models of a picture are, by the fingerprints their nodes announce: a matrix, a dendrogram, communities.

Whoever looks sees the communities of all it knows. A node sees those of its own, smaller view, so the two may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..similarity.annealing import progress_of
from ..similarity.communities import MAX_VIEW, Communities, Dendrogram, grow
from ..similarity.fingerprint import DIMENSIONS, HEADER_BYTES, Row, read_fingerprint, similarity_table
from ..wire.ids import PeerId
from ..wire.run import Manifest, read_manifest
from ..wire.status import NodeStatus
from .graph import PeerGraph, graph_of


class Similarity(NamedTuple):
    """All against all: `table[i, j]` says how alike the models of `peers[i]` and `peers[j]` are, 0 to 1."""

    peers: tuple[str, ...]
    table: NDArray[np.float64]


def similarity_of(picture: PeerGraph) -> Similarity:
    """The peers whose fingerprints are known, by id."""
    return similarities_of(picture.fingerprints)


def similarities_of(fingerprints: Mapping[str, bytes]) -> Similarity:
    """Those that can be compared, by id."""
    return _similarity(_rows(fingerprints))


def dendrogram_of(picture: PeerGraph) -> Dendrogram:
    """How the peers whose fingerprints are known join."""
    return grow(_rows(picture.fingerprints))


def communities_of(picture: PeerGraph) -> Communities:
    """The branches of the dendrogram under the cut of that moment."""
    return dendrogram_of(picture).cut(picture.progress or 0.0)


def with_likeness(picture: PeerGraph, fingerprints: Mapping[str, bytes], progress: float | None) -> PeerGraph:
    """The same picture with what follows from fingerprints: communities, and how alike those are who exchange."""
    if not fingerprints:
        return picture
    picture = msgspec.structs.replace(picture, fingerprints=dict(fingerprints), progress=progress)
    rows = _rows(fingerprints)
    home = grow(rows).cut(progress or 0.0).of
    peers = [
        msgspec.structs.replace(peer, community=home.get(PeerId(peer.id), peer.community)) for peer in picture.peers
    ]
    alike = _similarity(rows)
    place = {peer: number for number, peer in enumerate(alike.peers)}
    edges = [
        msgspec.structs.replace(edge, similarity=float(alike.table[place[edge.one], place[edge.other]]))
        if edge.one in place and edge.other in place
        else edge
        for edge in picture.exchanges
    ]
    return msgspec.structs.replace(picture, peers=tuple(peers), exchanges=tuple(edges))


def whole_picture(status: NodeStatus, now: float, manifest: bytes, fingerprints: Mapping[str, bytes]) -> PeerGraph:
    """All that a node knows, at `now` by its own clock."""
    run = read_manifest(manifest) if manifest else None
    picture = msgspec.structs.replace(graph_of(status, now), manifest=run, shards=status.shards)
    return with_likeness(picture, fingerprints, annealed(run, now + status.clock_offset_seconds))


def annealed(manifest: Manifest | None, now: float) -> float | None:
    """How far a run has gone from many communities to one, at a swarm time; None where nothing is learned."""
    if manifest is None or manifest.plan is None:
        return None
    return progress_of((now - manifest.created) / manifest.plan.round_seconds, manifest.plan.aim)


def _rows(fingerprints: Mapping[str, bytes]) -> dict[PeerId, Row]:
    """Those that can be compared: of the most common kind, and not more than one dendrogram holds."""
    kinds = Counter(fingerprint[:HEADER_BYTES] for fingerprint in fingerprints.values())
    usual = max(kinds, key=lambda kind: (kinds[kind], kind), default=b"")
    rows: dict[PeerId, Row] = {}
    for peer in sorted(fingerprints):
        if fingerprints[peer].startswith(usual) and len(rows) < MAX_VIEW:
            try:
                rows[PeerId(peer)] = read_fingerprint(fingerprints[peer])
            except ValueError:
                continue
    return rows


def _similarity(rows: Mapping[PeerId, Row]) -> Similarity:
    peers = tuple(sorted(rows))
    stacked = np.array([rows[peer] for peer in peers], np.int8).reshape(len(peers), DIMENSIONS)
    return Similarity(peers, similarity_table(stacked))
