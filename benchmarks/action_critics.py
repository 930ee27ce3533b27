"""Critics of state and action that learn from the samples of earlier policies; `estimators.py` judges their steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sbtrpo.learning.advantages import paths
from sbtrpo.learning.rollout import Rollout
from sbtrpo.nets.normaliser import units
from sbtrpo.nets.policy import Policy

ACTIONS = 8
"""Over so many of the policy's the mean of a learnt advantage is taken."""
HEADS = 5
"""Critics of state and action."""
FEW_STEPS = 10
"""Of a return before such a critic has its say."""


class ActionCritics:
    """Critics of state and action, Q(s, a): each discounts the next hit, from samples of earlier policies.

    Targets are returns of a few steps, as the earlier policies went on, uncorrected, and, where these pass without a
    hit, what slowly following copies say of the state after them and of an action of the policy there. Every critic
    has minibatches of its own.
    """

    def __init__(self, past: Sequence[Rollout], policy: Policy, gamma: float, updates: int) -> None:
        self.policy, device = policy, policy.log_std.device
        sizes = [past[0].obs.shape[-1] + 1 + past[0].action.shape[-1], 128, 128, 1]
        self._weights = [
            torch.empty(HEADS, a + 1, b, device=device).uniform_(-1, 1).div_(math.sqrt(a)).requires_grad_()
            for a, b in itertools.pairwise(sizes)
        ]
        follower = [weight.detach().clone() for weight in self._weights]
        samples = [few_steps(rollout, gamma) for rollout in past]
        before, action, gains, after, goes_on = (torch.cat(parts) for parts in zip(*samples, strict=True))
        optimiser = torch.optim.Adam(self._weights, lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
        for _ in range(updates):
            some = torch.randint(len(before), (HEADS, 4_096), device=device)
            with torch.no_grad():
                then = self._value(follower, after[some], self._act(after[some]))
                target = gains[some] + gamma**FEW_STEPS * goes_on[some] * then.clamp(0, 1)
            with torch.enable_grad():
                loss = (self._value(self._weights, before[some], action[some]) - target).square().mean(dim=1).sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            schedule.step()
            for slow, fast in zip(follower, self._weights, strict=True):
                slow.lerp_(fast.detach(), 0.01)

    def _act(self, inputs: Tensor) -> Tensor:
        mean = self.policy.mean(inputs[..., :-1])
        return mean + self.policy.log_std.exp() * torch.randn_like(mean)

    def _value(self, weights: Sequence[Tensor], inputs: Tensor, action: Tensor) -> Tensor:
        """(K, n) of each critic, from inputs (K, n, ...)."""
        x = torch.cat([inputs, action], -1)
        for layer, weight in enumerate(weights):
            x = torch.tanh(x) if layer else x
            x = torch.baddbmm(weight[:, -1:], x, weight[:, :-1])
        return x[..., 0]

    def advantage(self, rollout: Rollout, pessimism: float) -> Tensor:
        """Q(s, a) less its mean over actions of the policy, Q being so many deviations above the critics' mean."""
        inputs = seen(rollout)
        flat = inputs.flatten(0, 1).expand(HEADS, -1, -1)

        def q(action: Tensor) -> Tensor:
            values = self._value(self._weights, flat, action.float().flatten(0, 1).expand(HEADS, -1, -1))
            return (values.mean(dim=0) + pessimism * values.std(dim=0)).view(inputs.shape[:2]).double()

        return q(rollout.action) - torch.stack([q(self._act(inputs)) for _ in range(ACTIONS)]).mean(dim=0)


def few_steps(rollout: Rollout, gamma: float) -> tuple[Tensor, ...]:
    """Samples whose next few steps are known: state, action, what these bring, the state after, whether it counts."""
    x, _, over = paths(rollout.signals.double(), rollout.terminated, rollout.truncated, first_hit=True)
    inputs, steps = seen(rollout), torch.arange(len(rollout.obs), device=rollout.obs.device)
    gains, goes_on = torch.zeros_like(x[1]), torch.ones_like(x[1])
    for k in range(min(FEW_STEPS, len(steps))):
        until = len(steps) - k
        gains[:until] += gamma**k * goes_on[:until] * x[1, k:]
        goes_on[:until] *= ~over[1, k:]
    after = inputs[(steps + FEW_STEPS).clamp(max=len(steps) - 1)]
    known = (steps[:, None] < len(steps) - FEW_STEPS) | (goes_on == 0)
    parts = inputs, rollout.action.float(), gains.float(), after, goes_on.float()
    return tuple(part[known] for part in parts)


def seen(rollout: Rollout) -> Tensor:
    """What critics see: observations and the time that has passed, (T, N, obs_dim + 1)."""
    return torch.cat([rollout.obs, rollout.time[..., None].to(rollout.obs.dtype)], -1).float()


def seen_by(policy: Policy, rollout: Rollout, acted: Policy) -> Rollout:
    """A rollout of another policy, its observations as this policy sees them."""
    (mean, scale), (their_mean, their_scale) = (
        [torch.as_tensor(x, device=rollout.obs.device) for x in units(one.normaliser.state_dict())]
        for one in (policy, acted)
    )
    raw = rollout.obs.double() * their_scale + their_mean
    return replace(rollout, obs=((raw - mean) / scale).to(rollout.obs.dtype))
