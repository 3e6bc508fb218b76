"""What a user writes to train a policy in a swarm: an environment, a network, and maybe an algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .ppo import ActingPolicy, Batch


class PolicyTask:
    """One laptop's own problem. Its policy never leaves the machine; the critic is shared with others.

        class Short(p2pnode.PolicyTask):
            def env(self):
                env = gymnasium.make("CartPole-v1")
                env.unwrapped.length = 0.25
                return env

            def policy(self):
                return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    The network gives one number for each discrete action, or the mean of each continuous one.
    """

    job_kind: ClassVar[str] = "actors"
    name: ClassVar[str] = ""  # in tables; "": the name of the class
    envs: ClassVar[int] = 8  # environments that take their steps together
    learning_rate: ClassVar[float] = 1e-3
    epochs: ClassVar[int] = 4  # over each rollout
    minibatch: ClassVar[int] = 128
    clip: ClassVar[float] = 0.2
    entropy: ClassVar[float] = 0.01
    max_gradient: ClassVar[float] = 0.5

    def env(self) -> Any:
        """A new gymnasium environment, or a gymnasium vector environment that resets within the same step."""
        raise NotImplementedError("write env(), which returns a gymnasium environment")

    def policy(self) -> nn.Module:
        """The network that chooses actions."""
        raise NotImplementedError("write policy(), which returns a torch network")

    def context(self) -> tuple[float, ...]:
        """At most 8 numbers that tell this problem from those of others; the critic sees them."""
        return ()

    def optimizer(self, policy: ActingPolicy) -> torch.optim.Optimizer:
        """What changes the policy's weights."""
        import torch

        return torch.optim.Adam(policy.parameters(), lr=self.learning_rate, eps=1e-5, fused=True)

    def learn(self, policy: ActingPolicy, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
        """Improve the policy by one batch: PPO. Override it for another algorithm."""
        from .ppo import PpoSettings, ppo_update

        settings = PpoSettings(self.epochs, self.clip, self.entropy, self.max_gradient)
        ppo_update(policy, optimizer, batch, settings, self.minibatch * max(1, round(len(batch) / batch.own)))
