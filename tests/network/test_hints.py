from p2pnode.network.libp2p.supervised import MAX_HINTED_PEERS, Hints
from p2pnode.wire.addresses import EXAMPLE, parse_address
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import MAX_ADDRESSES

ADDRESS = parse_address(EXAMPLE)
OTHER = Identity(b"o" * 32).peer_id


def test_what_is_no_address_of_the_peer_is_passed_over():
    hints = Hints()
    hints.heard(OTHER, ("nonsense", EXAMPLE))
    assert hints.transports(OTHER) == ()
    assert hints.latest(1) == []


def test_peers_and_their_addresses_are_bounded_and_the_latest_stay():
    hints, peers = Hints(), [Identity(number.to_bytes(32, "big")).peer_id for number in range(MAX_HINTED_PEERS + 10)]
    for peer in peers:
        hints.heard(peer, tuple(f"/ip4/10.0.0.1/tcp/{port}/p2p/{peer}" for port in range(1, 50)))
    assert hints.latest(MAX_HINTED_PEERS + 10) == peers[:9:-1]
    assert len(hints.transports(peers[-1])) == MAX_ADDRESSES


def test_where_somebody_answered_comes_first():
    hints, elsewhere = Hints(), EXAMPLE.replace("203.0.113.7", "203.0.113.8")
    hints.heard(ADDRESS.peer, (elsewhere,))
    hints.reached(ADDRESS)
    assert hints.transports(ADDRESS.peer) == (ADDRESS.transport, parse_address(elsewhere).transport)
    hints.reached(ADDRESS)
    assert len(hints.transports(ADDRESS.peer)) == 2
