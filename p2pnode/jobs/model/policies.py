"""Merge policies by name, and whether their settings are right."""

from __future__ import annotations

from collections.abc import Mapping

from ...merging.policy import MakePolicy
from ...merging.registry import check_settings, known_policies, policy_named
from ...similarity.partners import RANGES, partner_settings, without_partner_settings
from ...wire.errors import UsageError


def check_policy(policy: str | None, settings: Mapping[str, float]) -> None:
    """UsageError when the policy is not known here, or not with these settings.

    None is a policy that is not known yet: one of those that are here must have such settings.
    """
    if policy is not None:
        known_policy(policy)
    problems = []
    for name in known_policies() if policy is None else (policy,):
        try:
            partner_settings(settings)
            check_settings(name, without_partner_settings(settings), besides=RANGES)
            return
        except ValueError as error:
            problems.append(error)
    raise UsageError(f"--set: {problems[0]}")


def known_policy(name: str) -> MakePolicy:
    """What makes the policy of this name; UsageError when it is not known here."""
    try:
        return policy_named(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
