"""Laws of paths: names and blocks, the router, who trains what, and mixtures."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.jobs.paths.assign import Worker, assign, powers, preferred, read_worker, write_worker
from p2pnode.jobs.paths.grid import ENDS, SHARINGS, PathGrid, read_grid, read_sharing
from p2pnode.jobs.paths.mixing import best, mixed_losses
from p2pnode.jobs.paths.router import (
    MAX_ROUTER_BYTES,
    Classifier,
    PathRouter,
    RoutedData,
    arranged,
    check_size,
    feature_count,
    make_router,
    shares,
)
from p2pnode.wire.errors import UsageError

# ---- the grid ----


@st.composite
def grids(draw: st.DrawFn) -> PathGrid:
    levels = draw(st.integers(1, 3))
    sharing = draw(st.lists(st.sampled_from(SHARINGS), min_size=levels, max_size=levels))
    return PathGrid(levels, draw(st.integers(2, 4)), tuple(sharing))


@given(grids())
def test_names_of_paths_are_read_back_and_all_different(grid: PathGrid) -> None:
    names = [grid.name(path) for path in range(grid.paths)]
    assert len(set(names)) == grid.paths
    assert [grid.find(name) for name in names] == list(range(grid.paths))


@given(grids())
def test_a_block_is_shared_by_the_paths_of_its_level(grid: PathGrid) -> None:
    assert grid.owners[ENDS] == tuple(range(grid.paths))
    for path in range(grid.paths):
        blocks = grid.blocks(path)
        assert len(blocks) == grid.levels + 1
        for level, block in enumerate(blocks[1:]):
            own = {"all": grid.paths, "options": grid.paths // grid.options, "own": 1}[grid.sharing[level]]
            assert len(grid.owners[block]) == own
            assert path in grid.owners[block]
            assert len(block) <= 40, "it travels as the name of a circle"


@pytest.mark.parametrize(
    ("text", "share", "message"),
    [
        ("3", "ends", "write LEVELSxOPTIONS, such as 2x2"),
        ("2x", "ends", "write LEVELSxOPTIONS"),
        ("9x2", "ends", "1 to 8 levels"),
        ("2x1", "ends", "2 to 8 options"),
        ("4x4", "ends", "makes 256 paths; at most 64"),
        ("2x2", "own+all+all", "for each of the 2 levels"),
        ("2x2", "none", "write ends, options or all"),
    ],
)
def test_a_grid_that_is_none_is_one_line(text: str, share: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_grid(text, share)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sharing_is_one_word_or_one_for_each_level() -> None:
    assert read_sharing("ends", 2) == ("own", "own")
    assert read_sharing("options", 3) == ("options",) * 3
    assert read_sharing("all+own", 2) == ("all", "own")


# ---- the router ----


def documents(kinds: int, each: int, seed: int) -> RoutedData:
    """Documents of some kinds, each with words of its own besides common ones."""
    rng = np.random.default_rng(seed)
    size = feature_count(kinds)
    common = rng.random(size)
    chances = [common + 8 * (rng.random(size) > 0.9) for _ in range(kinds)]
    counts = np.array([rng.multinomial(400, one / one.sum()) for one in chances for _ in range(each)], np.float32)
    short = np.array([rng.multinomial(30, one / one.sum()) for one in chances for _ in range(each)], np.float32)
    return RoutedData(counts, np.arange(len(counts)), short)


@given(st.sampled_from([(1, 2), (2, 2), (1, 3)]), st.integers(0, 50))
@settings(max_examples=8, deadline=None)
def test_the_router_finds_kinds_and_gives_equal_shares(shape: tuple[int, int], seed: int) -> None:
    grid = PathGrid(*shape, read_sharing("ends", shape[0]))
    data = documents(grid.paths, 40, seed)
    router = make_router(data, grid, 32, seed)
    paths = router.documents(data.documents)
    assert max(shares(paths, grid.paths)) - min(shares(paths, grid.paths)) < 0.25
    weights = router.beginnings(data.beginnings)
    assert np.allclose(np.exp(weights).sum(1), 1, atol=1e-4)
    assert (weights.argmax(1) == paths).mean() > 0.8
    assert router.size <= MAX_ROUTER_BYTES
    again = msgspec.convert(msgspec.to_builtins(router), PathRouter)
    assert np.array_equal(again.documents(data.documents), paths), "every member routes as the founder does"


def test_sixty_four_paths_fit_into_the_manifest() -> None:
    router = make_router(documents(64, 8, 1), PathGrid(2, 8, ("own", "own")), 32, 0)
    assert router.size <= MAX_ROUTER_BYTES


def test_a_router_beyond_its_bound_is_refused() -> None:
    large = Classifier(bytes(32 * 1024), (1.0,) * 32, (0.0,) * 32)
    with pytest.raises(UsageError, match="at most 32,768 fit into the manifest"):
        check_size(PathRouter(1024, large, large, 32))


@pytest.mark.parametrize(
    "change",
    [{"features": 64}, {"whole": [b"", [1.0, 1.0], [0.0, 0.0]]}, {"whole": [bytes(128), [float("nan"), 1], [0, 0]]}],
)
def test_a_router_that_does_not_fit_together_is_refused(change: dict[str, object]) -> None:
    good = Classifier(bytes(128), (1.0, 1.0), (0.0, 0.0))
    written = {**msgspec.to_builtins(PathRouter(64, good, good, 8)), "features": 64, **msgspec.to_builtins(change)}
    if "whole" not in change:
        written["features"] = 63
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(written, PathRouter)


def test_too_few_documents_are_one_line() -> None:
    with pytest.raises(UsageError, match="4 paths need 32 documents or more, and the data have 28"):
        make_router(documents(4, 7, 0), PathGrid(2, 2, ("own", "own")), 32, 0)


def test_labels_stay_together_and_are_spread_evenly() -> None:
    data = documents(4, 10, 3)
    labels = np.repeat(np.arange(4), 10)
    router = make_router(data, PathGrid(1, 2, ("own",)), 8, 0, labels)
    paths = router.documents(data.documents)
    assert all(len(set(paths[labels == label])) == 1 for label in range(4))
    assert np.bincount(paths).tolist() == [20, 20]


def test_clusters_most_alike_share_their_first_option() -> None:
    centres = np.array([[0, 0], [10, 0], [0, 1], [10, 1]], np.float32)
    order = arranged(centres, PathGrid(2, 2, ("options", "options")))
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset((0, 2)), frozenset((1, 3))}


# ---- who trains what ----


@st.composite
def swarms(draw: st.DrawFn) -> tuple[dict[str, Worker], list[float]]:
    paths = draw(st.integers(2, 6))
    everything = frozenset(range(paths))
    workers = {}
    for number in range(draw(st.integers(1, 9))):
        own = draw(st.sets(st.integers(0, paths - 1), max_size=2))
        able = everything if draw(st.booleans()) else frozenset(draw(st.sets(st.integers(0, paths - 1)))) | own
        workers[f"n{number}"] = Worker(draw(st.floats(0.5, 4)), frozenset(own), able, draw(st.integers(0, 99)))
    return workers, draw(st.lists(st.floats(1, 1000), min_size=paths, max_size=paths))


def after(workers: dict[str, Worker], needs: list[float]) -> dict[str, Worker]:
    moves = assign(workers, needs)
    return {
        peer: Worker(worker.speed, moves[peer].paths, worker.able, 0) if peer in moves else worker
        for peer, worker in workers.items()
    }


@given(swarms())
def test_no_path_with_samples_stays_without_a_worker(
    swarm: tuple[dict[str, Worker], list[float]],
) -> None:
    workers, needs = swarm
    table = after(workers, needs)
    power = powers(table, len(needs))
    for path in range(len(needs)):
        if any(path in worker.able for worker in workers.values()):
            assert power[path] > 0
    assert all(worker.paths for worker in table.values() if worker.able)


@given(swarms())
def test_nobody_gets_a_path_of_which_it_has_no_samples(swarm: tuple[dict[str, Worker], list[float]]) -> None:
    workers, needs = swarm
    for peer, move in assign(workers, needs).items():
        assert move.paths - workers[peer].paths <= workers[peer].able
        assert move.reason


@given(swarms())
def test_what_is_assigned_stays_and_does_not_depend_on_the_order(swarm: tuple[dict[str, Worker], list[float]]) -> None:
    workers, needs = swarm
    assert assign(dict(reversed(workers.items())), needs) == assign(workers, needs)
    table = after(workers, needs)
    assert assign(table, needs) == {}, "everybody who obeys is done"


def test_fewer_nodes_than_paths_take_turns_and_more_give_them_back() -> None:
    able = frozenset(range(4))
    two = after({"a": Worker(able=able), "b": Worker(able=able)}, [1.0] * 4)
    assert sorted(len(worker.paths) for worker in two.values()) == [2, 2]
    four = after({**two, "c": Worker(able=able), "d": Worker(able=able)}, [1.0] * 4)
    assert [len(worker.paths) for worker in four.values()] == [1, 1, 1, 1]
    assert len(frozenset.union(*(worker.paths for worker in four.values()))) == 4


def test_a_path_whose_workers_left_is_taken_over_by_one_who_can_be_spared() -> None:
    able = frozenset(range(2))
    three = {peer: Worker(1.0, frozenset((0,)), able, 3) for peer in "abc"}
    moves = assign(three, [1.0, 1.0])
    assert len(moves) == 1
    (move,) = moves.values()
    assert move.paths == {1}
    assert move.peer == preferred(1, list(three))[0]


def test_a_node_moves_for_a_gain_only_after_a_while() -> None:
    able = frozenset(range(2))

    def swarm(rounds: int) -> dict[str, Worker]:
        rich = {f"r{number}": Worker(1.0, frozenset((0,)), able, rounds) for number in range(4)}
        return {**rich, "p": Worker(1.0, frozenset((1,)), able, rounds)}

    assert assign(swarm(10), [1.0, 1.0]) == {}
    assert len(assign(swarm(60), [1.0, 1.0])) == 1


@given(st.floats(0.1, 1e6), st.sets(st.integers(0, 63)), st.sets(st.integers(0, 63)), st.integers(0, 10**6))
def test_what_is_announced_is_read_back(speed: float, own: set[int], able: set[int], rounds: int) -> None:
    state = write_worker(Worker(speed, frozenset(own), frozenset(able), rounds))
    assert len(state) <= 32
    found = read_worker(state, 64)
    assert found is not None
    assert found.paths == own
    assert found.able == able
    assert found.rounds == min(rounds, 0xFFFF)


@given(st.binary(max_size=40), st.integers(2, 64))
def test_any_bytes_announce_something_sensible_or_nothing(state: bytes, paths: int) -> None:
    found = read_worker(state, paths)
    assert found is None or (found.paths | found.able <= set(range(paths)) and 0 < found.speed < 1e9)


# ---- mixtures ----

losses = st.integers(0, 2**31).map(
    lambda seed: np.random.default_rng(seed).gamma(2.0, 1.0, (3, 4, 10)).astype(np.float32)
)


@given(losses)
def test_a_mixture_is_never_much_worse_than_its_best_path(found: np.ndarray) -> None:
    priors = np.full((4, 3), -np.log(3), np.float32)
    mixed = mixed_losses(found, priors).sum(1)
    assert (mixed <= found.sum(2).min(0) + np.log(3) + 1e-3).all()


@given(losses)
def test_a_mixture_of_one_path_is_that_path(found: np.ndarray) -> None:
    priors = np.log(np.array([[0.2, 0.5, 0.3]] * 4, np.float32))
    assert np.allclose(mixed_losses(found, best(priors, 1)), found[1], atol=1e-5)
    assert np.allclose(np.exp(best(priors, 2)).sum(1), 1)
    assert np.array_equal(np.isfinite(best(priors, 2)), [[False, True, True]] * 4)
