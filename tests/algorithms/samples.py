"""Policies and batches of random numbers."""

import torch

from sbtrpo.algorithms.trust_region import Batch
from sbtrpo.policy import Policy


def make_policy(seed: int = 0, observations: int = 5, actions: int = 2, hidden: tuple[int, ...] = (7, 6)) -> Policy:
    """In float64, with standard deviations other than 1."""
    generator = torch.Generator().manual_seed(seed)
    policy = Policy(observations, actions, hidden, generator)
    policy.params = [tensor.double() for tensor in policy.params]
    policy.params[0] += 0.3 * torch.randn(actions, generator=generator, dtype=torch.float64)
    return policy


def make_batch(policy: Policy, seed: int = 0, size: int = 200) -> Batch:
    """Actions of the policy, and advantages that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    dtype = policy.log_std.dtype
    actions, observations = len(policy.log_std), policy.params[1].shape[1]
    obs = torch.randn((size, observations), generator=generator, dtype=dtype)
    noise = torch.randn((size, actions), generator=generator, dtype=dtype)
    action = policy.mean(obs) + torch.exp(policy.log_std) * noise
    reward, cost = torch.randn((2, size), generator=generator, dtype=dtype)
    reward += action[:, 0] * obs[:, 0]
    cost += action[:, -1] * obs[:, 1]
    return Batch(obs, action, policy.log_prob(obs, action), reward / reward.std(), cost - cost.mean())
