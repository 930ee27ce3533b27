"""Returns and advantages over `[T, N]` arrays: pure functions, vectorised over worlds and over signals.

A signal is the reward or a constraint's cost; several of them, (S, T, N), pass through together.

A path ends where an episode terminates, where it is truncated (time-out), or where the rollout is cut. The three differ
in what is known of the rest: nothing is left after termination, a critic may judge the last observation otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor


def returns_to_go(x: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """Discounted sums to the end of each path, without bootstrap: of the shape of x.

    Args:
        x: (..., T, N) rewards or costs.
        ended: (T, N) bool, whether the path ends with this step (terminated or truncated).
        gamma: discount.

    >>> returns_to_go(torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[False], [True], [False]]), 0.5).T.tolist()
    [[1.5, 1.0, 1.0]]
    """
    sums = torch.zeros_like(x[..., 0, :], dtype=torch.float64)
    out = torch.empty_like(x)
    keep = gamma * (~ended).to(torch.float64)
    for t in range(len(ended) - 1, -1, -1):
        sums = x[..., t, :] + keep[t] * sums
        out[..., t, :] = sums
    return out


def gae(
    x: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimates: of the shape of x.

    Args:
        x: (..., T, N) rewards or costs.
        values: (..., T, N) critic at the observations acted on.
        next_values: (..., T, N) critic at what followed: within a path the next observation, at its end the last one
            (time-out, or cut of the rollout).
        terminated: (T, N) bool; nothing follows.
        ended: (T, N) bool, whether the path ends with this step (terminated or truncated).
        gamma: discount.
        lam: GAE's lambda.
    """
    delta = (x + gamma * next_values * (~terminated) - values).to(torch.float64)
    return returns_to_go(delta, ended, gamma * lam).to(x.dtype)


def standardise(advantage: Tensor) -> Tensor:
    """Mean 0 and (unbiased) standard deviation 1 over all samples."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def centre(advantage: Tensor) -> Tensor:
    """Mean 0 over all samples, scale unchanged."""
    return advantage - advantage.mean()


def normalise(advantages: Tensor) -> Tensor:
    """All samples of each signal in a row, (S, ...) -> (S, B): reward, the first, standardised; costs centred."""
    reward, *costs = advantages.flatten(1)
    return torch.stack([standardise(reward), *map(centre, costs)])


def baseline_features(observation: Tensor, time: Tensor) -> Tensor:
    """Features of the linear baseline: observation, its square, and powers of the time in the episode.

    Args:
        observation: (..., obs_dim), normalised.
        time: (...), steps since the episode began, divided by the episode's length.
    """
    clipped = observation.clamp(-10, 10)
    t = time[..., None].to(observation.dtype)
    return torch.cat([clipped, clipped * clipped, t, t * t, t * t * t, torch.ones_like(t)], dim=-1)


def fit_baseline(features: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """Ridge regression in closed form, in float64: features (n, k) and targets (n, m) -> weights (k, m).

    The ridge is relative to the features' mean square, so that its strength does not depend on their scale.
    """
    phi, y = features.to(torch.float64), targets.to(torch.float64)
    gram = phi.T @ phi / len(phi)
    scale = ridge * torch.diagonal(gram).mean()
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    weights: Tensor = torch.linalg.solve(gram + scale * eye, phi.T @ y / len(phi))
    return weights.to(features.dtype)
