"""The baseline of the benchmark `actors`: a loop with the structure of CleanRL's ppo.py, on gymnasium's vector envs."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def get_action_and_value(
        self, x: torch.Tensor, action: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def cleanrl_steps(num_envs: int, num_steps: int) -> Iterator[None]:
    """One iteration of the loop at each `next`."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(num_envs)])
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.zeros((num_steps, num_envs, 4))
    actions, logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs)) for _ in range(5))
    next_obs = torch.Tensor(envs.reset(seed=1)[0])
    next_done = torch.zeros(num_envs)
    batch_size, minibatch_size = num_envs * num_steps, num_envs * num_steps // 4
    while True:
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            found, reward, terminations, truncations, _ = envs.step(action.cpu().numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(found), torch.Tensor(np.logical_or(terminations, truncations))
        with torch.no_grad():
            next_value = agent.critic(next_obs).reshape(1, -1)
            advantages, lastgaelam = torch.zeros_like(rewards), torch.zeros(num_envs)
            for t in reversed(range(num_steps)):
                nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
                nextvalues = next_value if t == num_steps - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nonterminal * lastgaelam
            returns = advantages + values
        flat = [
            part.reshape(batch_size, *part.shape[2:]) for part in (obs, logprobs, actions, advantages, returns, values)
        ]
        b_obs, b_logprobs, b_actions, b_advantages, b_returns, b_values = flat
        order = np.arange(batch_size)
        for _ in range(4):
            np.random.shuffle(order)
            for start in range(0, batch_size, minibatch_size):
                pick = order[start : start + minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[pick], b_actions.long()[pick])
                ratio = (newlogprob - b_logprobs[pick]).exp()
                adv = b_advantages[pick]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
                newvalue = newvalue.view(-1)
                unclipped = (newvalue - b_returns[pick]) ** 2
                clipped = b_values[pick] + torch.clamp(newvalue - b_values[pick], -0.2, 0.2)
                v_loss = 0.5 * torch.max(unclipped, (clipped - b_returns[pick]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        yield
