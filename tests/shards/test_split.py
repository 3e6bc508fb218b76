"""Shares: one owner each, little movement, and dealt for experiments as asked."""

from __future__ import annotations

import numpy as np
import pytest

from p2pnode.config.split import Split, parse_split
from p2pnode.shards.shard import Shard, ShardId
from p2pnode.shards.split import claimed, owner, split_rows
from p2pnode.wire.errors import UsageError

SHARDS = [Shard(ShardId(f"shard{number}"), np.arange(3)) for number in range(400)]
PEERS = [f"peer{number}" for number in range(8)]
LABELS = np.repeat(np.arange(10), 100)


def owners(peers: list[str]) -> dict[str, str]:
    return {shard.id: peer for peer in peers for shard in claimed(SHARDS, peers, peer)}


class TestClaiming:
    def test_each_shard_has_one_owner_and_shares_are_fair(self):
        shares = [claimed(SHARDS, PEERS, peer) for peer in PEERS]
        assert sum(map(len, shares)) == len(SHARDS) == len(owners(PEERS))
        assert min(map(len, shares)) >= 25 and max(map(len, shares)) <= 80

    def test_whether_one_counts_oneself_among_the_peers_does_not_matter(self):
        assert claimed(SHARDS, PEERS[1:], PEERS[0]) == claimed(SHARDS, PEERS, PEERS[0])

    def test_when_a_peer_leaves_only_its_shards_move(self):
        before, after = owners(PEERS), owners(PEERS[:-1])
        assert {before[shard] for shard in before if before[shard] != after[shard]} == {PEERS[-1]}

    def test_when_a_peer_comes_only_the_shards_it_gets_move(self):
        before, after = owners(PEERS), owners([*PEERS, "newcomer"])
        assert {after[shard] for shard in before if before[shard] != after[shard]} == {"newcomer"}

    def test_alone_one_has_all(self):
        assert claimed(SHARDS, [], "me") == SHARDS
        assert owner("shard", ["me"]) == "me"


class TestDealing:
    @pytest.mark.parametrize("how", ["iid", "parts", "dirichlet:0.3", "dirichlet:100", "labels:2", "labels:10"])
    @pytest.mark.parametrize("n", [1, 5, 8, 32])
    def test_no_sample_twice_nobody_without_and_the_same_by_seed(self, how, n):
        parts = split_rows(LABELS, 1000, n, parse_split(how), seed=3)
        everything = np.concatenate(parts)
        assert len(parts) == n and all(len(part) for part in parts)
        assert len(np.unique(everything)) == len(everything)
        if n * (10 if how == "labels:10" else 2) >= 10:
            assert len(everything) == 1000
        again = split_rows(LABELS, 1000, n, parse_split(how), seed=3)
        assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))

    def test_iid_is_even(self):
        assert {len(part) for part in split_rows(None, 1000, 8, Split("iid"), 1)} == {125}

    def test_parts_are_consecutive(self):
        parts = split_rows(None, 10, 3, Split("parts"), 1)
        assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_labels_gives_each_node_k_labels_and_all_are_covered(self, k):
        parts = split_rows(LABELS, 1000, 10, Split("labels", k), seed=2)
        assert {len(np.unique(LABELS[part])) for part in parts} == {k}
        assert len(np.unique(np.concatenate([LABELS[part] for part in parts]))) == 10

    def test_a_small_alpha_is_more_uneven(self):
        def unevenness(alpha: float) -> float:
            parts = split_rows(LABELS, 1000, 8, Split("dirichlet", alpha), seed=1)
            counts = np.array([np.bincount(LABELS[part], minlength=10) / len(part) for part in parts])
            return float(counts.max(1).mean())

        assert unevenness(0.1) > unevenness(1.0) > unevenness(100.0)

    @pytest.mark.parametrize("alpha", [1e-4, 1e-6, 1e6])
    def test_extreme_alphas_work(self, alpha):
        parts = split_rows(LABELS, 1000, 32, Split("dirichlet", alpha), seed=1)
        assert sum(map(len, parts)) == 1000 and min(map(len, parts)) >= 1

    def test_seeds_matter(self):
        one, other = (split_rows(LABELS, 1000, 4, Split("dirichlet", 0.3), seed) for seed in (1, 2))
        assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class TestWords:
    @pytest.mark.parametrize("text", ["iid", "parts", "dirichlet:0.3", "labels:2"])
    def test_a_split_is_written_as_it_is_read(self, text):
        assert str(parse_split(text)) == text

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("even", "one of iid, parts, dirichlet:ALPHA, labels:K"),
            ("iid:3", "'iid:3' is not a split"),
            ("dirichlet", "for example dirichlet:0.3"),
            ("dirichlet:x", "for example dirichlet:0.3"),
            ("dirichlet:-1", "not a number"),
            ("dirichlet:nan", "not a number"),
            ("dirichlet:0", "above zero"),
            ("labels:2.5", "a whole number"),
            ("labels:0", "from 1 to"),
        ],
    )
    def test_a_slip_is_named(self, text, said):
        with pytest.raises(UsageError) as caught:
            parse_split(text)
        assert said in str(caught.value)

    def test_what_cannot_be_dealt_says_so(self):
        with pytest.raises(UsageError, match="needs samples with labels"):
            split_rows(None, 100, 4, Split("labels", 2), 1)
        with pytest.raises(UsageError, match="more labels than there are"):
            split_rows(LABELS, 1000, 4, Split("labels", 11), 1)
        with pytest.raises(UsageError, match="3 samples cannot be dealt to 4 nodes"):
            split_rows(None, 3, 4, Split("iid"), 1)
