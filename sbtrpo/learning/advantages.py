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
        ended: (T, N) or of the shape of x, bool, whether the path ends with this step (terminated or truncated).
        gamma: discount.

    >>> returns_to_go(torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[False], [True], [False]]), 0.5).T.tolist()
    [[1.5, 1.0, 1.0]]
    """
    sums = torch.zeros_like(x[..., 0, :], dtype=torch.float64)
    out = torch.empty_like(x)
    keep = gamma * (~ended).to(torch.float64)
    for t in range(x.shape[-2] - 1, -1, -1):
        sums = x[..., t, :] + keep[..., t, :] * sums
        out[..., t, :] = sums
    return out


def paths(
    signals: Tensor, terminated: Tensor, truncated: Tensor, first_hit: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The signals, where each has nothing left, and where the path of each ends: (S, T, N).

    With `first_hit` a cost's path ends with its next violation, which counts 1 whatever it costs: returns to go are γ
    to the power of the steps until then, and 0 where none follows. Reward, the first signal, stays as it is.

    Args:
        signals: (S, T, N) reward and costs.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        first_hit: see above.

    >>> signals = torch.tensor([[[1.0], [1.0], [1.0]], [[0.0], [7.0], [0.0]]])
    >>> nothing = torch.zeros(3, 1, dtype=torch.bool)
    >>> x, _, ended = paths(signals, nothing, nothing, first_hit=True)
    >>> returns_to_go(x, ended, 0.5).squeeze(2).tolist()
    [[1.75, 1.5, 1.0], [0.5, 1.0, 0.0]]
    """
    terminated, ended = terminated.expand_as(signals), (terminated | truncated).expand_as(signals)
    if not first_hit:
        return signals, terminated, ended
    hit = signals > 0
    hit[0] = False
    return torch.where(hit, 1.0, signals), terminated | hit, ended | hit


def gae(
    x: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimates: of the shape of x.

    Args:
        x: (..., T, N) rewards or costs.
        values: (..., T, N) critic at the observations acted on.
        next_values: (..., T, N) critic at what followed: within a path the next observation, at its end the last one
            (time-out, or cut of the rollout).
        terminated: (T, N) or of the shape of x, bool; nothing follows.
        ended: the same, whether the path ends with this step (terminated or truncated).
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
