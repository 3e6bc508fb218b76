"""Experts: a member trains the levels of a path on data of its own and offers the result to the mixtures of others.

Only weights and one row for the router travel, never data. An offer is signed by its author, who alone can withdraw it;
then every member deletes what it has of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
import numpy as np
from blake3 import blake3

from ...compression.weights import MAX_UNITS, UNIT, Floats
from ...discovery.services import Services
from ...network.base import MemorySink, Payload, StreamLimits
from ...storage.files import Storage
from ...wire.errors import LocalProblem, NetworkDown, PeerError, PeerRefused, UsageError, suggestion
from ...wire.ids import Identity, PeerId, short, signed_by
from ...wire.messages import Message
from ...wire.types import Hash, PeerText, Signature, decoded
from ..contract import JobContext
from .grid import MAX_PATHS
from .router import FEATURES, normalised

MAX_EXPERTS = 16  # in a job
MAX_OF_AUTHOR = 4
NAME = r"^[a-z0-9][a-z0-9_-]{0,31}\Z"
_BATCH, _STEPS, _RATE, _SHARPNESS, _DECAY = 1024, 300, 0.05, 8.0, 1e-3

ExpertName = Annotated[str, msgspec.Meta(pattern=NAME)]


class ExpertOffer(msgspec.Struct, frozen=True, array_like=True):
    """What an author says of its expert. A later version replaces an earlier one."""

    scope: Annotated[str, msgspec.Meta(max_length=120)]  # run and job
    name: ExpertName
    author: PeerText
    version: Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]
    withdrawn: bool
    path: Annotated[int, msgspec.Meta(ge=0, lt=MAX_PATHS)]  # from which it began
    samples: Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)]
    content: Hash  # of its weights
    row: Annotated[bytes, msgspec.Meta(max_length=FEATURES[0])]  # for the router, as a row of its classifier
    scale: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
    constant: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
    signature: Signature = b""

    @property
    def key(self) -> tuple[str, str]:
        return self.author, self.name

    def scores(self, counts: Floats) -> Floats:
        """How well the expert suits beginnings, on the scale of the router's log probabilities."""
        row = np.frombuffer(self.row, np.int8).astype(np.float32) * self.scale
        found: Floats = (normalised(counts) @ row + self.constant).astype(np.float32)
        return found


_decoder = msgspec.msgpack.Decoder(ExpertOffer)


def signed(offer: ExpertOffer, identity: Identity) -> ExpertOffer:
    return msgspec.structs.replace(offer, signature=identity.sign(_statement(offer)))


def _statement(offer: ExpertOffer) -> bytes:
    return b"p2pnode expert 1\0" + msgspec.msgpack.encode(msgspec.structs.replace(offer, signature=b""))


def check_offer(offer: ExpertOffer, scope: str, features: int) -> None:
    """ValueError when an offer is not its author's, of another job, or does not fit the router."""
    if offer.scope != scope:
        raise ValueError("the offer is of another job")
    if not offer.withdrawn and len(offer.row) != features:
        raise ValueError("its row does not fit the router")
    if not signed_by(offer.author, _statement(offer), offer.signature):
        raise ValueError("it is not signed by its author")


def merged(known: Mapping[tuple[str, str], ExpertOffer], offer: ExpertOffer) -> dict[tuple[str, str], ExpertOffer]:
    """The known offers with another one: the latest version counts, and the number of offers is bounded.

    Of equal versions the withdrawal counts, then the smaller hash, so that all members end with the same. Offers that
    were withdrawn are remembered as such.
    """
    before = known.get(offer.key)
    if before is not None and _rank(before) >= _rank(offer):
        return dict(known)
    mine = [one for one in known.values() if one.author == offer.author and one.key != offer.key]
    if before is None and len(mine) >= MAX_OF_AUTHOR:
        return dict(known)
    if before is None and len(known) >= MAX_EXPERTS:
        return dict(known)
    return {**known, offer.key: offer}


def _rank(offer: ExpertOffer) -> tuple[int, bool, bytes]:
    return offer.version, offer.withdrawn, bytes(255 - byte for byte in offer.content)


def learn_row(own: Floats, others: Floats, rng: np.random.Generator) -> tuple[bytes, float, float]:
    """A row of the router for an expert: high on beginnings like its `own`, low on the `others`. Logistic regression.

    The router's paths together have the probability 1, so 0 is where an expert is as likely as all of them.
    """
    features = normalised(np.concatenate([own, others]))
    positive = np.arange(len(features)) < len(own)
    weights = np.zeros(features.shape[1] + 1, np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    chances = np.where(positive, 0.5 / max(1, len(own)), 0.5 / max(1, len(others)))
    for step in range(1, _STEPS + 1):
        rows = rng.choice(len(features), min(_BATCH, len(features)), p=chances / chances.sum())
        inputs = np.concatenate([_SHARPNESS * features[rows], np.ones((len(rows), 1), np.float32)], axis=1)
        guess = 1 / (1 + np.exp(-(inputs @ weights)))
        gradient = inputs.T @ (guess - positive[rows]) / len(rows) + _DECAY * weights
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        weights -= (_RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)).astype(np.float32)
    row = _SHARPNESS * weights[:-1]
    scale = max(float(np.abs(row).max()), 1e-12) / 127
    return np.rint(row / scale).astype(np.int8).tobytes(), scale, float(weights[-1])


# ---- messages ----

Offers = Annotated[tuple[ExpertOffer, ...], msgspec.Meta(max_length=MAX_EXPERTS)]


class SwapExperts(Message, frozen=True, tag="swap experts"):
    """The offers that the sender knows; answered with those that the peer knows."""

    offers: Offers = ()


class ExpertsAre(Message, frozen=True, tag="experts"):
    offers: Offers = ()


class GetExpert(Message, frozen=True, tag="get expert"):
    """Asks for the weights of an expert."""

    content: Hash


def pack_weights(weights: Floats) -> bytes:
    """Weights as they travel: numbers of 16 bits."""
    return weights.astype("<f2").tobytes()


def unpack_weights(data: bytes, size: int) -> Floats:
    """ValueError when these are not `size` weights that can be used."""
    if len(data) != 2 * size:
        raise ValueError(f"{len(data):,} bytes of weights; {2 * size:,} expected")
    found = np.frombuffer(data, "<f2").astype(np.float32)
    if not np.isfinite(found).all() or np.abs(found).max(initial=0.0) >= MAX_UNITS * UNIT:
        raise ValueError("the weights are out of bounds")
    return found


class ExpertBook:
    """The offers that this node knows, the weights that it has of them, and which ones it does not want to use."""

    def __init__(self, context: JobContext, features: int, size: int) -> None:
        self.offers: dict[tuple[str, str], ExpertOffer] = {}
        self.ignored: set[str] = set()
        self._context = context
        self._services: Services = context.services
        self._storage: Storage = context.services.seams.storage
        self._features = features
        self._size = size
        self._folder = f"{context.folder}/experts"
        self._load()

    # ---- what is known ----

    def offered(self) -> list[ExpertOffer]:
        """The offers that were not withdrawn, by name."""
        return sorted(
            (one for one in self.offers.values() if not one.withdrawn), key=lambda one: (one.name, one.author)
        )

    async def usable(self) -> list[ExpertOffer]:
        """The experts whose weights are here or can be had, without those that the user ignores."""
        found = []
        for offer in self.offered():
            if offer.name not in self.ignored and await self._fetch(offer):
                found.append(offer)
        return found

    async def weights(self, offer: ExpertOffer) -> Floats:
        data = self._storage.read(self._file(offer.content))
        if data is None:
            raise LocalProblem(f"the expert {offer.name} is gone; it may have been withdrawn")
        return unpack_weights(data, self._size)

    def find(self, name: str) -> ExpertOffer:
        """The offer of this name, one's own first; UsageError when there is none."""
        found = [one for one in self.offered() if one.name == name]
        found.sort(key=lambda one: one.author != self._services.identity.peer_id)
        if not found:
            names = [one.name for one in self.offered()]
            raise UsageError(
                f"there is no expert {name[:60]!r}; {suggestion(name, names) if names else 'nobody offers one'}"
            )
        return found[0]

    # ---- changes ----

    def add(self, offer: ExpertOffer, weights: Floats | None = None) -> bool:
        """Take in an offer; returns whether it is new. ValueError when it is not valid."""
        check_offer(offer, self._context.calls.scope, self._features)
        before, after = self.offers.get(offer.key), merged(self.offers, offer)
        if after.get(offer.key) == before:
            return False
        if weights is not None:
            self._storage.write(self._file(offer.content), pack_weights(weights))
        self.offers = after
        if before is not None and before.content not in {one.content for one in self.offered()}:
            self._storage.delete(self._file(before.content))
        self._save()
        what = "withdrew" if offer.withdrawn else "offers"
        self._services.events.say("expert", f"{short(offer.author)} {what} the expert {offer.name}")
        return True

    def ignore(self, name: str, wanted: bool) -> None:
        """Use an expert in mixtures here, or do not."""
        self.find(name)
        self.ignored = self.ignored - {name} if wanted else self.ignored | {name}
        self._save()

    # ---- members ----

    async def swap(self, peer: PeerId) -> None:
        """Tell a member what is known here, and learn what it knows."""
        try:
            answer = await self._context.calls.ask(peer, SwapExperts(tuple(self.offers.values())), ExpertsAre)
        except (PeerError, NetworkDown):
            return
        self._hear(peer, answer.offers)

    def answer(self, peer: PeerId, request: SwapExperts) -> ExpertsAre:
        self._hear(peer, request.offers)
        return ExpertsAre(tuple(self.offers.values()))

    def _hear(self, peer: PeerId, offers: tuple[ExpertOffer, ...]) -> None:
        for offer in offers:
            try:
                self.add(offer)
            except ValueError as problem:
                self._services.fault(peer, f"expert: {problem}")
                return

    async def stream(self, peer: PeerId, request: GetExpert) -> Payload:
        known = request.content in {one.content for one in self.offered()}
        data = self._storage.read(self._file(request.content)) if known else None
        if data is None:
            raise PeerRefused("unknown expert", "that expert is not here")
        return Payload.of(data)

    async def _fetch(self, offer: ExpertOffer) -> bool:
        """Whether an expert's weights are here, if need be from its author or another member that has them."""
        if self._storage.read(self._file(offer.content)) is not None:
            return True
        members = self._context.members()
        for peer in sorted(members, key=lambda one: one != offer.author):
            sink = MemorySink()
            try:
                await self._context.calls.fetch(peer, GetExpert(offer.content), sink, StreamLimits(2 * self._size + 1))
                data = sink.content()
                unpack_weights(data, self._size)
            except (PeerError, NetworkDown):
                continue
            except ValueError as problem:
                self._services.fault(peer, f"expert: {problem}")
                continue
            if blake3(data).digest() != offer.content:
                self._services.fault(peer, "expert: the weights are not those of the offer")
                continue
            self._storage.write(self._file(offer.content), data)
            return True
        return False

    # ---- disk ----

    def _file(self, content: bytes) -> str:
        return f"{self._folder}/{content.hex()[:32]}.weights"

    def _save(self) -> None:
        record = msgspec.msgpack.encode((tuple(self.offers.values()), sorted(self.ignored)))
        self._storage.write(f"{self._folder}/offers", record)

    def _load(self) -> None:
        data = self._storage.read(f"{self._folder}/offers")
        if data is None:
            return
        try:
            offers, ignored = decoded(msgspec.msgpack.Decoder(tuple[Offers, list[str]]), data, "offers of experts")
            for offer in offers:
                check_offer(offer, self._context.calls.scope, self._features)
                self.offers = merged(self.offers, offer)
            self.ignored = set(ignored)
        except ValueError as error:
            self._services.events.say("state", f"saved offers of experts cannot be used: {error}", warning=True)
