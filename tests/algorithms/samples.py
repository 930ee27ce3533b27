"""Policies, batches and methods of random numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch, Method
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from tests.settings import config_of

COMMON = (
    "kl", "surrogate_r_change", "surrogate_c_change", "surrogate_r_predicted", "surrogate_c_predicted",
    "gradient_norm_r", "gradient_norm_c", "step_norm", "angle_r", "angle_c",
)  # fmt: skip
"""What every update reports, whatever the method, beside `skipped` and `accepted_step`."""


def make_policy(
    seed: int = 0,
    observations: int = 5,
    actions: int = 2,
    hidden: tuple[int, ...] = (7, 6),
    dtype: torch.dtype = torch.float64,
) -> Policy:
    """With standard deviations other than 1."""
    generator = torch.Generator().manual_seed(seed)
    policy = Policy(observations, actions, hidden, generator)
    policy.params = [tensor.to(dtype) for tensor in policy.params]
    policy.params[0] += 0.3 * torch.randn(actions, generator=generator, dtype=torch.float64).to(dtype)
    return policy


def make_batch(policy: Policy, seed: int = 0, size: int = 200, heads: int = 0, costs: int = 1) -> Batch:
    """Actions of the policy, and advantages and targets that depend on them; of reward and so many costs."""
    generator = torch.Generator().manual_seed(seed)
    dtype = policy.log_std.dtype
    actions, observations = len(policy.log_std), policy.params[1].shape[1]
    obs = torch.randn((size, observations), generator=generator, dtype=dtype)
    noise = torch.randn((size, actions), generator=generator, dtype=dtype)
    action = policy.mean(obs) + torch.exp(policy.log_std) * noise
    signals = torch.randn((1 + costs, size), generator=generator, dtype=dtype)
    signals[0] += action[:, 0] * obs[:, 0]
    for number in range(1, 1 + costs):
        signals[number] += action[:, -number % actions] * obs[:, number % observations]
    advantages = torch.stack([signals[0] / signals[0].std(), *(cost - cost.mean() for cost in signals[1:])])
    targets = signals[:heads].float() if heads else None
    return Batch(obs, action, policy.log_prob(obs, action), advantages, targets)


def altered(batch: Batch, **changes: Tensor) -> Batch:
    """The batch with other entries, among them `advantage_r` and `advantage_c`."""
    reward, cost = changes.pop("advantage_r", batch.advantage_r), changes.pop("advantage_c", batch.advantage_c)
    return dataclasses.replace(batch, advantages=torch.stack([reward, cost]), **changes)


def make(algo: str, policy: Policy, seed: int = 0, names: Sequence[str] = ("c",), **settings: Any) -> Method[Any]:
    """A method at a policy, with those of the settings that it has and the critics that its advantages need."""
    config = config_of(algo, **settings)
    heads, size = config.method.heads(len(names)), policy.params[1].shape[1]
    generator = torch.Generator().manual_seed(seed)
    critics = Critics(heads, size, (6, 5), config.method.critic_learning_rate, generator) if heads else None
    return make_method(policy, critics, config, generator, names)


def start(algo: str, seed: int = 0, names: Sequence[str] = ("c",), **settings: Any) -> tuple[Method[Any], Batch]:
    """A method before its first update, in the package's own precision, and a batch for it."""
    policy = make_policy(seed, dtype=torch.float32)
    method = make(algo, policy, seed, names, **settings)
    heads = 0 if method.critics is None else method.critics.heads
    return method, make_batch(policy, seed, heads=heads, costs=len(names))


def theta_of(method: Method[Any]) -> Tensor:
    """The policy's parameters, as one vector of their own."""
    return flatten(method.policy.params).clone()


def everything(method: Method[Any]) -> np.ndarray[Any, Any]:
    """All parameters, policy's and critics'."""
    critics = np.zeros(0) if method.critics is None else method.critics.stack.theta
    return np.concatenate([theta_of(method).double().numpy(), critics])
