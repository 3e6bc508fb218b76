"""How partners are weighed is part of a run's plan, whatever its policy, and an error in it is one line."""

from __future__ import annotations

from dataclasses import fields

import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.binding import make_plan
from p2pnode.jobs.train.prepare import fresh_policy
from p2pnode.merging.deltaset.options import DeltaSetOptions
from p2pnode.merging.policy import Policy
from p2pnode.merging.registry import POLICIES
from p2pnode.similarity.partners import RANGES, PartnerSettings
from p2pnode.training.host import ModelHost
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import Identity
from tests.jobs.train.test_train_job import Lines

HOST = ModelHost(Lines(), "cpu", seed=1)


def founded(policy: str, **settings: float) -> Policy:
    options = TrainOptions("lines", policy=policy, settings=settings)
    return fresh_policy(make_plan(HOST, options, 1), HOST, Identity(b"1" * 32))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_goes_with_all_of_them(policy: str) -> None:
    founded(policy, **{name: most for name, (_, most) in RANGES.items()})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", RANGES)
def test_out_of_range_is_reported_with_the_range(policy: str, name: str) -> None:
    least, most = RANGES[name]
    for wrong in (least - 1, most + 1, float("nan")):
        with pytest.raises(UsageError, match=rf"{name} .* is not between {least} and {most}"):
            founded(policy, **{name: wrong})


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_no_setting_is_still_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="no setting 'explor'"):
        founded(policy, explor=0.3)


def test_each_has_a_default_in_its_range_and_a_name_no_policy_uses() -> None:
    usual = PartnerSettings()
    assert all(least <= getattr(usual, name) <= most for name, (least, most) in RANGES.items())
    assert not {field.name for field in fields(DeltaSetOptions)} & set(RANGES)
