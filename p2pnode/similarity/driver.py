"""Finds peers with similar models by their fingerprints, sees communities among them, and chooses partners."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from ..discovery.reputation import PartnerRecord
from ..discovery.services import Services
from ..discovery.table import Peer
from ..runtime.calls import JobCalls
from ..wire.bounded import put_bounded
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.records import SignedRecord
from ..wire.run import Aim
from ..wire.status import PeerState
from ..wire.types import Seconds
from .annealing import bridge_rate, progress_of
from .communities import MAX_VIEW, Communities, Dendrogram, grow
from .fingerprint import Row, comparable, read_fingerprint, similarity
from .messages import NeighboursAre, SwapNeighbours
from .neighbours import FAR, MARK_BYTES, NEAR, RECOMMENDED, Neighbour, Neighbours
from .partners import Candidate, Home, PartnerChoice, PartnerSettings, choose_partners

SAMPLE_EVERY = 10  # rounds after which the directory is sampled
REGROW = 5  # rounds after which communities are computed anew
ON_THE_LOOP: Seconds = 0.01  # a tree that takes longer is computed in the background
LASTING: Seconds = 120.0  # announcements that stay valid for longer need not be recommended again
SWAP_TIMEOUT: Seconds = 5.0
MOST_UNMET = 256  # recommended peers remembered until they are met
LONGEST_PAUSE = 16  # rounds between swaps of neighbours while they bring nothing new


class PeerSimilarity:
    """The similar peers, communities and partners of one model. Does nothing before the first own fingerprint."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        aim: Aim = "shared",
        settings: PartnerSettings = PartnerSettings(),  # noqa: B008  (frozen)
    ) -> None:
        self.fingerprint = b""  # of our own model, for the announcement
        self.communities: Communities = grow({}).cut(0.0)
        self.partner_record = PartnerRecord()
        self._services = services
        self._calls = calls
        self.aim: Aim = aim
        self._settings = settings
        self._growing: Seconds = math.inf  # how long the last tree took; unknown at first
        self._row: Row | None = None
        self._neighbours: Neighbours | None = None
        self._unmet: dict[PeerId, None] = {}  # recommended peers, which count once this node has met them
        self._swaps = 0
        self._pause = 1  # rounds between swaps
        self._skip = 0
        self._met: dict[PeerId, int] = {}
        self._reasons: dict[PeerId, str] = {}

    # ---- own model ----

    def took(self, fingerprint: bytes) -> None:
        """Our model has a new fingerprint."""
        self.fingerprint, self._row = fingerprint, read_fingerprint(fingerprint)
        if self._neighbours is None:
            self._neighbours = Neighbours(self._calls.me, self._row)
        self._neighbours.moved(self._row)

    def withdraw(self) -> None:
        """Our model has no fingerprint any more: as before the first one."""
        self.fingerprint, self._row, self._neighbours = b"", None, None
        self.communities = grow({}).cut(0.0)

    # ---- swapping neighbours ----

    async def swap(self, own_record: Callable[[], SignedRecord | None]) -> None:
        """Called every round: swap recommendations of similar peers; rarely while that brings nothing new."""
        neighbours = self._neighbours
        self._skip -= 1
        if neighbours is None or self._skip > 0:
            return
        own = own_record()
        if own is None:
            return
        self._look_around(neighbours)
        news = [await self._swap_with_somebody(own, neighbours) for _ in range(neighbours.asks_due())]
        self._pause = 1 if any(news) else min(2 * self._pause, LONGEST_PAUSE)
        self._skip = self._pause

    async def _swap_with_somebody(self, own: SignedRecord, neighbours: Neighbours) -> bool:
        """Swap once; returns whether anything was new, or another peer should be tried soon."""
        partner = neighbours.partner_to_ask(self._services.seams.rng)
        if partner is None:
            return True
        try:
            answer = await self._ask(partner, self._request((own,), neighbours))
            self._hear(partner, answer.announcements, neighbours)
            news = self._recommended(partner, answer.known, answer.floor, neighbours)
            if news:
                await self._ask(partner, SwapNeighbours(news))
        except PeerError:
            neighbours.forget([partner])
            return True
        except NetworkDown:
            return True
        return bool(news or answer.announcements)

    def answer(self, peer: PeerId, request: SwapNeighbours) -> NeighboursAre:
        """The answer to a peer that swaps neighbours with us."""
        if self._neighbours is None:
            return NeighboursAre(())
        self._hear(peer, request.announcements, self._neighbours)
        news = self._recommended(peer, request.known, request.floor, self._neighbours)
        return NeighboursAre(news, self._marks(self._neighbours), self._neighbours.floor())

    def _look_around(self, neighbours: Neighbours) -> None:
        """Take in the peers present, if they are few; of many, now and then a random sample of the directory."""
        now = self._services.clock.now()
        neighbours.expire(now)
        neighbours.take_in(self._met_since())
        present = self._services.table.present(self._calls.run)
        if len(present) <= NEAR:
            neighbours.take_in(self._comparable(peer.id for peer in present))
        elif self._swaps % SAMPLE_EVERY == 0:
            listed = [peer.id for peer in present if peer.listed]
            neighbours.take_sample(self._comparable(self._services.seams.rng.sample(listed, min(FAR, len(listed)))))
        self._swaps += 1

    async def _ask(self, partner: PeerId, request: SwapNeighbours) -> NeighboursAre:
        return await self._calls.ask(partner, request, NeighboursAre, SWAP_TIMEOUT)

    def _request(self, announcements: tuple[SignedRecord, ...], neighbours: Neighbours) -> SwapNeighbours:
        return SwapNeighbours(announcements, self._marks(neighbours), neighbours.floor())

    def _marks(self, neighbours: Neighbours) -> bytes:
        return b"".join(sorted(neighbours.marks(self._services.clock.now(), LASTING)))

    def _hear(self, teller: PeerId, records: Iterable[SignedRecord], neighbours: Neighbours) -> None:
        """Check announcements like any others, for signature and expiry; only then do their fingerprints count."""
        heard = list(records)[: RECOMMENDED + 1]
        for record in heard:
            self._services.registry.take_in(record, teller)
            put_bounded(self._unmet, PeerId(record.peer), None, MOST_UNMET)
        neighbours.take_in(self._met_since())

    def _met_since(self) -> list[Neighbour]:
        """The recommended peers that this node has talked with by now."""
        known = {peer: self._services.table.get(peer) for peer in self._unmet}
        self._unmet = {peer: None for peer, found in known.items() if found is not None and not found.met}
        return self._comparable(peer for peer in known if peer not in self._unmet)

    def _recommended(
        self, peer: PeerId, known: bytes, floor: float, neighbours: Neighbours
    ) -> tuple[SignedRecord, ...]:
        neighbour = next(iter(self._comparable([peer])), None)
        if neighbour is None:
            return ()
        marks = {known[start : start + MARK_BYTES] for start in range(0, len(known), MARK_BYTES)}
        nearest = (
            self._services.table.get(each.peer) for each in neighbours.recommend(peer, neighbour.row, marks, floor)
        )
        return tuple(found.record for found in nearest if found is not None and found.here)

    def _comparable(self, peers: Iterable[PeerId]) -> list[Neighbour]:
        """The peers whose fingerprints can be compared with ours."""
        found = (self._services.table.get(peer) for peer in peers)
        return [neighbour for peer in found if peer is not None and (neighbour := self._neighbour(peer)) is not None]

    def _neighbour(self, peer: Peer) -> Neighbour | None:
        theirs = peer.announcement.job(self._calls.job).fingerprint
        if not peer.here or peer.announcement.run != self._calls.run or not comparable(theirs, self.fingerprint):
            return None
        try:
            return Neighbour(peer.id, read_fingerprint(theirs), peer.record.expiry)
        except ValueError:
            return None

    # ---- choosing ----

    async def look(self, circle: Collection[PeerId], round_number: int, age_rounds: float) -> None:
        """Compute communities every few rounds; in the background if the last time took long on this machine."""
        if round_number % REGROW and self.communities.of:
            return
        view, progress, clock = self._view(circle), progress_of(age_rounds, self.aim), self._services.seams.clock

        def grown() -> tuple[Communities, Seconds]:
            begun = clock.monotonic()
            return grow(view).cut(progress), clock.monotonic() - begun

        quick = self._growing <= ON_THE_LOOP
        self.communities, self._growing = grown() if quick else await self._services.seams.background(grown)

    def choose(
        self,
        circle: Collection[PeerId],
        others: Sequence[PeerId],
        round_number: int,
        age_rounds: float,
        rate_factor: float = 1.0,
    ) -> list[PartnerChoice]:
        """Partners for this round from our circle, at times from `others`; `rate_factor` is the factor on that rate."""
        rate = bridge_rate(progress_of(age_rounds, self.aim), rate_factor)
        home = Home(self._calls.me, frozenset(circle) - {self._calls.me}, rate)
        known = {*circle, *self._outside(others)}
        peers = (self._services.table.get(peer) for peer in sorted(known))
        table = [self._candidate(peer) for peer in peers if peer is not None]
        choices = choose_partners(table, self.communities, round_number, self._services.seams.rng, home, self._settings)
        for choice in choices:
            self._met[choice.peer] = round_number
            self._reasons[choice.peer] = choice.reason
        self._forget_strangers(known)
        return choices

    def _outside(self, others: Sequence[PeerId]) -> list[PeerId]:
        """The peers outside our circle that are in our view, and some random ones from the directory."""
        known = (self._services.table.get(peer) for peer in others)
        listed = [peer.id for peer in known if peer is not None and peer.listed]
        possible = listed or others  # before the directory was read
        strangers = self._services.seams.rng.sample(possible, min(FAR, len(possible)))
        return [peer for peer in others if peer in self.communities.of] + strangers

    @property
    def tree(self) -> Dendrogram:
        """The tree of the peers in the last look."""
        return self.communities.dendrogram

    def newcomer_view(self, peers: Collection[PeerId], fingerprint: bytes) -> dict[PeerId, Row]:
        """The fingerprints of `peers` and of this node, which is not announced; {} when it has none."""
        if not fingerprint:
            return {}
        self.took(fingerprint)
        view = self._view(peers)
        self.withdraw()
        return view

    def similarity_to(self, peer: PeerId) -> float | None:
        """How similar a peer's model is to ours, 0 to 1; None while one of the two has no fingerprint."""
        neighbour = next(iter(self._comparable([peer])), None)
        return None if neighbour is None or self._row is None else similarity(self._row, neighbour.row)

    def describe(self, state: PeerState) -> PeerState:
        """The same peer with its community, its similarity to us, and why it was last chosen as a partner."""
        peer = PeerId(state.id)
        community, reason = self.communities.of.get(peer, ""), self._reasons.get(peer, "")
        return replace(state, community=community, similarity=self.similarity_to(peer), reason=reason)

    def _view(self, circle: Collection[PeerId]) -> dict[PeerId, Row]:
        """The fingerprints of this node, its circle and its neighbours."""
        if self._row is None or self._neighbours is None:
            return {}
        inside = {neighbour.peer: neighbour.row for neighbour in self._comparable(sorted(circle))}
        view = {self._calls.me: self._row, **inside, **self._neighbours.rows()}
        return dict(list(view.items())[:MAX_VIEW])

    def _candidate(self, peer: Peer) -> Candidate:
        return Candidate(
            peer.id,
            met=self._met.get(peer.id),
            latency=peer.latency,
            rate=peer.rate,
            faults=self._services.reputation.faults_of(peer.id),
            worth=self.partner_record.worth(peer.id),
            similarity=self.similarity_to(peer.id),
            stale=not peer.here or peer.record.expiry <= self._services.clock.now(),
            banned=self._services.reputation.ignored(peer.id, self._services.seams.clock.monotonic()),
        )

    def _forget_strangers(self, known: set[PeerId]) -> None:
        """Keep the memory of choices bounded."""
        if len(self._met) > 4 * MAX_VIEW:
            self._met = {peer: when for peer, when in self._met.items() if peer in known}
            self._reasons = {peer: reason for peer, reason in self._reasons.items() if peer in known}
