"""A task of one's own: `p2pnode check examples/own_task.py`, then `python -m p2pnode --task examples/own_task.py`."""

import torch
from torch import nn

from p2pnode import Task


class Spirals(Task):
    """Which of two spirals a point lies on."""

    hidden = 32

    def model(self):
        return nn.Sequential(nn.Linear(2, self.hidden), nn.Tanh(), nn.Linear(self.hidden, 2))

    def points(self, seed):
        chance = torch.Generator().manual_seed(seed)
        turn, spiral = 6 * torch.rand(2000, generator=chance).sqrt(), torch.randint(2, (2000,), generator=chance)
        angle = turn + torch.pi * spiral
        return {"x": torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 3, "y": spiral}

    def data(self):
        return self.points(seed=1)

    def test_data(self):
        return self.points(seed=2)
