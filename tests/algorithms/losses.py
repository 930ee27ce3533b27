"""Methods of this package as a user would write them: by their losses, which autograd differentiates."""

from typing import Any

import torch
from torch import Tensor

from sbtrpo.algorithms.first_order import Minibatch
from sbtrpo.algorithms.focops import FOCOPS
from sbtrpo.algorithms.p3o import P3O
from sbtrpo.algorithms.ppo import PPO


def surrogate(batch: Minibatch, advantage: Tensor, clip: float) -> Tensor:
    """mean min(ρ A, clip(ρ) A)"""
    clipped = torch.clamp(batch.ratio, 1 - clip, 1 + clip)
    return torch.minimum(batch.ratio * advantage, clipped * advantage).mean()


class PPOByLoss(PPO[Any]):
    def loss(self, batch: Minibatch) -> Tensor:
        return -surrogate(batch, batch.advantage_r, self.settings.clip)


class FOCOPSByLoss(FOCOPS):
    def loss(self, batch: Minibatch) -> Tensor:
        inside = (batch.kl <= self.settings.target_kl).double()
        gain = batch.ratio * batch.advantage_r / self.settings.temperature
        if self.settings.focops_broadcast:
            return (batch.kl * inside).mean() - inside.mean() * gain.mean()
        return ((batch.kl - gain) * inside).mean()


class P3OByLoss(P3O[Any]):
    def loss(self, batch: Minibatch) -> Tensor:
        clip, hinge = self.settings.clip, batch.fixed
        cost = -surrogate(batch, -batch.advantage_c, clip)
        return -surrogate(batch, batch.advantage_r, clip) + hinge.weight * torch.relu(cost + hinge.offset)
