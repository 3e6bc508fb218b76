"""Model swaps with peers that lie: it costs them reputation at most, and never harms the node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from p2pnode.jobs.train.job import TrainJob
from p2pnode.jobs.train.messages import GetWeights, SwapAccepted, SwapModels, SwapResult
from p2pnode.jobs.train.model_swap_rules import encode_result
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from tests.jobs.train.setups import with_options
from tests.jobs.train.test_train_job import OTHER, SETUP, Lines, Setup

ASK = SwapModels(5)
FETCH = GetWeights()


def made(private: bool = True, visits: bool = True) -> TrainJob:
    setup = with_options(SETUP if private else replace(SETUP, rows=None), no_model_swaps=not visits)
    learning = Setup(Lines(), setup).learning
    learning.trainer.use(np.arange(64))
    learning.model_swap._out_of_reach = lambda: [OTHER.peer_id]
    learning.model_swap.after_round(50)
    return learning


def over(delta: bytes) -> SwapResult:
    return SwapResult(delta)


def test_weights_go_only_to_who_was_promised_them() -> None:
    async def main() -> None:
        model_swap = made().model_swap
        with pytest.raises(PeerRefused, match="no swap was agreed on"):
            await model_swap.payload(OTHER.peer_id, FETCH)
        answer = model_swap.answer(OTHER.peer_id, ASK)
        assert answer.private and answer.shard_bytes > 0
        assert (await model_swap.payload(OTHER.peer_id, FETCH)).size > 0
        with pytest.raises(PeerRefused, match="not now"):
            model_swap.answer(OTHER.peer_id, ASK)

    run_virtual(main())


@pytest.mark.parametrize(
    ("private", "visits", "reason"), [(False, True, "no data of its own"), (True, False, "swaps no models")]
)
def test_who_does_not_host_says_why(private: bool, visits: bool, reason: str) -> None:
    async def main() -> None:
        with pytest.raises(PeerRefused, match=reason):
            made(private, visits).model_swap.answer(OTHER.peer_id, ASK)

    run_virtual(main())


def test_nonsense_that_comes_home_is_refused_and_what_nobody_waits_for_is_passed_over() -> None:
    async def main() -> None:
        learning = made()
        model_swap, weights = learning.model_swap, learning.policy.start()
        await model_swap.over(OTHER.peer_id, over(b"nobody asked"))
        model_swap.answer(OTHER.peer_id, ASK)
        await model_swap.payload(OTHER.peer_id, FETCH)
        with pytest.raises(PeerMisbehaved, match="model swap"):
            await model_swap.over(OTHER.peer_id, over(b"nonsense"))
        assert np.array_equal(await model_swap.add_results(weights), weights)

    run_virtual(main())


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_does_harm_is_not_kept(sign: float) -> None:
    async def main() -> None:
        learning = made()
        model_swap, weights = learning.model_swap, learning.policy.start()
        better = learning.trainer.steps(weights, 40).weights
        model_swap.answer(OTHER.peer_id, ASK)
        await model_swap.payload(OTHER.peer_id, FETCH)
        await model_swap.over(OTHER.peer_id, over(encode_result(weights, weights + sign * (better - weights))))
        home = await model_swap.add_results(weights)
        assert np.array_equal(home, weights) == (sign < 0)
        assert model_swap.made == (sign > 0)
        assert learning.trainer.evaluate(home).loss <= learning.trainer.evaluate(weights).loss

    run_virtual(main())


class TrainingGoesOn:
    """The bench's lock while a round has it: whoever would wait here holds up the loop for the whole round."""

    def __enter__(self) -> None:
        raise AssertionError("the loop waits for training")

    def __exit__(self, *details: object) -> None: ...


def test_a_visit_never_waits_for_training_on_the_loop() -> None:
    async def agreed(*request: object) -> SwapAccepted:
        return SwapAccepted(True, 100)

    async def main() -> None:
        learning = made()
        model_swap, weights = learning.model_swap, learning.policy.start()
        home = over(encode_result(weights, weights + 0.01))
        learning.model_host.lock = TrainingGoesOn()  # type: ignore[assignment]
        model_swap.answer(OTHER.peer_id, ASK)
        await model_swap.payload(OTHER.peer_id, FETCH)
        await model_swap.over(OTHER.peer_id, home)
        learning.exchange_loop._services.calls.call = agreed  # type: ignore[method-assign, assignment]
        assert await model_swap.once()

    run_virtual(main())
