"""Small trust-region problems with dense Fisher matrices, and their solutions by other means."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

KL = 0.01
Instance = tuple[Tensor, Tensor, Tensor]


def spd(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn((size, size), generator=generator, dtype=torch.float64)
    return root @ root.T / size + 0.1 * torch.eye(size, dtype=torch.float64)


def instance(size: int, seed: int) -> Instance:
    """A Fisher matrix and both gradients."""
    generator = torch.Generator().manual_seed(seed)
    g_r, g_c = torch.randn((2, size), generator=generator, dtype=torch.float64)
    return spd(size, seed + 1), g_r, g_c


def kl_of(f: Tensor, step: Tensor) -> float:
    return 0.5 * float(step @ f @ step)


def pure_steps(f: Tensor, g_r: Tensor, g_c: Tensor) -> tuple[Tensor, Tensor]:
    """Δ_r and Δ_c."""

    def ascend(g: Tensor) -> Tensor:
        natural: Tensor = torch.linalg.solve(f, g)
        return math.sqrt(2 * KL / float(g @ natural)) * natural

    return ascend(g_r), -ascend(g_c)


def slsqp(f: NDArray[np.float64], g_r: NDArray[np.float64], g_c: NDArray[np.float64], beta: float) -> float:
    """The best reward change that cuts cost by `beta` (in [-1, 1]) of the most, from scipy.

    In coordinates where the trust region is the unit ball.
    """
    to_ball = math.sqrt(2 * KL) * np.linalg.inv(np.linalg.cholesky(f)).T
    r, c = to_ball.T @ g_r, to_ball.T @ g_c
    scale_r, scale_c = np.linalg.norm(r), np.linalg.norm(c)
    r, c = r / scale_r, c / scale_c
    constraints = [
        {"type": "ineq", "fun": lambda d: -beta - c @ d, "jac": lambda d: -c},
        {"type": "ineq", "fun": lambda d: 1 - d @ d, "jac": lambda d: -2 * d},
    ]
    found = minimize(
        lambda d: -r @ d, -beta * c, jac=lambda d: -r, constraints=constraints, method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    # SLSQP's constraints hold up to a rest, for which it must not be rewarded: back into the ball, then towards -c.
    inside = found.x / max(1.0, float(np.linalg.norm(found.x)))
    rest = max(0.0, beta + float(c @ inside))
    share = rest / (1 - beta + rest) if rest else 0.0
    return float(r @ ((1 - share) * inside - share * c) * scale_r)


def largest_share(u: NDArray[np.float64], betas: NDArray[np.float64]) -> float:
    """The greatest t, beyond 1 too, such that a step d in the unit ball has ⟨u_i, d⟩ ≥ t β_i, from scipy.

    In d and t / scale, where no promise is above 1 then. One β at least must be positive.
    """
    scale = float(betas.max())
    rows = np.hstack([u, -betas[:, None] / scale])
    constraints = [
        {"type": "ineq", "fun": lambda v: rows @ v, "jac": lambda v: rows},
        {"type": "ineq", "fun": lambda v: 1 - v[:-1] @ v[:-1], "jac": lambda v: np.append(-2 * v[:-1], 0.0)},
    ]
    goal = np.append(np.zeros(u.shape[1]), -1.0)
    shares = [0.0]
    for start in _starts(u):
        point = minimize(
            lambda v: goal @ v, np.append(start, 0.0), jac=lambda v: goal, constraints=constraints, method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 100},
        ).x  # fmt: skip
        d = point[:-1] / max(1.0, float(np.linalg.norm(point[:-1])))
        if (u @ d)[betas == 0].min(initial=0.0) >= -1e-9:
            shares.append(float(((u @ d)[betas > 0] / betas[betas > 0]).min()))
    return max(shares)


def best_reward(r: NDArray[np.float64], u: NDArray[np.float64], levels: NDArray[np.float64]) -> float:
    """The greatest ⟨r, d⟩ in the unit ball with ⟨u_i, d⟩ ≥ levels_i for all i, from scipy; -inf if none is found."""
    constraints = [
        {"type": "ineq", "fun": lambda d: u @ d - levels, "jac": lambda d: u},
        {"type": "ineq", "fun": lambda d: 1 - d @ d, "jac": lambda d: -2 * d},
    ]
    rewards = [-math.inf]
    for start in _starts(u):
        point = minimize(
            lambda d: -r @ d, start, jac=lambda d: -r, constraints=constraints, method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 100},
        ).x  # fmt: skip
        point = point / max(1.0, float(np.linalg.norm(point)))
        if (u @ point - levels).min() >= -1e-10:
            rewards.append(float(r @ point))
    return max(rewards)


def _starts(u: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Nowhere, between all u_i, and at the first of them."""
    return [np.zeros(u.shape[1]), u.mean(axis=0), u[0]]


def project(f: Tensor, step: Tensor, b: Tensor, c: float) -> Tensor:
    """The point of c + ⟨b, Δ⟩ ≤ 0 that is nearest to a step in the metric F, from scipy."""
    root = np.linalg.cholesky(f.numpy())  # in coordinates root.T Δ the metric is the identity
    start, normal = root.T @ step.numpy(), np.linalg.solve(root, b.numpy())
    scale = float(np.linalg.norm(start))
    found = minimize(
        lambda d: float((d - start / scale) @ (d - start / scale)), start / scale,
        constraints=[{"type": "ineq", "fun": lambda d: -(c / scale + normal @ d), "jac": lambda d: -normal}],
        jac=lambda d: 2 * (d - start / scale), method="SLSQP", options={"ftol": 1e-16, "maxiter": 500},
    )  # fmt: skip
    return torch.from_numpy(np.linalg.solve(root.T, scale * found.x))


def dense(product: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """A matrix from its product with rows."""
    return product(torch.eye(size, dtype=torch.float64))
