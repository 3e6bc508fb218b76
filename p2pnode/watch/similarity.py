"""How similar the models of a picture are, by the fingerprints their nodes announce: matrix, dendrogram, communities.

These communities are those of all peers in the picture. A node computes its own from a smaller view, so the two may
differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..jobs.train.plan import first_plan
from ..similarity.annealing import progress_of
from ..similarity.communities import MAX_VIEW, Communities, Dendrogram, grow
from ..similarity.fingerprint import DIMENSIONS, HEADER_BYTES, Row, read_fingerprint, similarity_table
from ..wire.ids import PeerId
from ..wire.run import Manifest, read_manifest
from ..wire.status import NodeStatus
from .graph import PeerGraph, graph_of


class Similarity(NamedTuple):
    """The similarities of all pairs: `table[i, j]` is that of the models of `peers[i]` and `peers[j]`, 0 to 1."""

    peers: tuple[str, ...]
    table: NDArray[np.float64]


def similarity_of(picture: PeerGraph) -> Similarity:
    """Returns the similarities of the peers whose fingerprints are known, in the order of their ids."""
    return similarities_of(picture.fingerprints)


def similarities_of(fingerprints: Mapping[str, bytes]) -> Similarity:
    """Returns the similarities of the fingerprints that can be compared, in the order of the peers' ids."""
    return _similarity(_rows(fingerprints))


def dendrogram_of(picture: PeerGraph) -> Dendrogram:
    """The dendrogram of the peers whose fingerprints are known."""
    return grow(_rows(picture.fingerprints))


def communities_of(picture: PeerGraph) -> Communities:
    """The branches of the dendrogram under the cut of that moment."""
    return dendrogram_of(picture).cut(picture.progress or 0.0)


def with_similarity(picture: PeerGraph, fingerprints: Mapping[str, bytes], progress: float | None) -> PeerGraph:
    """The same picture with what follows from fingerprints: communities, and the similarity of those who exchange."""
    if not fingerprints:
        return picture
    picture = msgspec.structs.replace(picture, fingerprints=dict(fingerprints), progress=progress)
    rows = _rows(fingerprints)
    home = grow(rows).cut(progress or 0.0).of
    peers = [
        msgspec.structs.replace(peer, community=home.get(PeerId(peer.id), peer.community)) for peer in picture.peers
    ]
    found = _similarity(rows)
    place = {peer: number for number, peer in enumerate(found.peers)}
    edges = [
        msgspec.structs.replace(edge, similarity=float(found.table[place[edge.one], place[edge.other]]))
        if edge.one in place and edge.other in place
        else edge
        for edge in picture.exchanges
    ]
    return msgspec.structs.replace(picture, peers=tuple(peers), exchanges=tuple(edges))


def whole_picture(status: NodeStatus, now: float, manifest: bytes, fingerprints: Mapping[str, bytes]) -> PeerGraph:
    """Everything a node knows, at `now` by its own clock."""
    run = read_manifest(manifest) if manifest else None
    picture = msgspec.structs.replace(graph_of(status, now), manifest=run, shards=status.shards)
    return with_similarity(picture, fingerprints, annealed(run, now + status.clock_offset_seconds))


def annealed(manifest: Manifest | None, now: float) -> float | None:
    """How far a run has gone from many communities to one at a swarm time; None where nothing is trained."""
    plan = first_plan(manifest)
    if manifest is None or plan is None:
        return None
    return progress_of((now - manifest.created) / plan.round_seconds, plan.aim)


def _rows(fingerprints: Mapping[str, bytes]) -> dict[PeerId, Row]:
    """The fingerprints that can be compared: those of the most common kind, at most as many as a dendrogram holds."""
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
