"""Four laptops, four problems, one critic: each laptop balances another pole (docs/actors.md).

python -m p2pnode --job critic,kind=actors --task examples/four_policies.py:Short
python -m p2pnode join CODE --task examples/four_policies.py:Long        # on the others, with the invite
"""

from __future__ import annotations

from typing import ClassVar

import gymnasium
from torch import nn

import p2pnode


class Short(p2pnode.PolicyTask):
    """A short pole falls fast."""

    settings: ClassVar = {"length": 0.25}

    def env(self) -> gymnasium.Env:
        env = gymnasium.make("CartPole-v1")
        for name, value in self.settings.items():
            setattr(env.unwrapped, name, value)
        return env

    def policy(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


class Long(Short):
    settings: ClassVar = {"length": 1.0}


class Heavy(Short):
    """Gravity is twice as strong."""

    settings: ClassVar = {"gravity": 20.0}


class Weak(Short):
    """The cart is pushed half as hard."""

    settings: ClassVar = {"force_mag": 5.0}
