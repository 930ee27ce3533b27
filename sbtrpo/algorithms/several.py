"""SB-TRPO's step for several costs.

With the gradients g_r of reward and g_1, ..., g_C of the costs, every cost i has a best step of its own,

    Δ_i = argmin ⟨g_i, Δ⟩  s.t. ½ ΔᵀFΔ ≤ δ             which cuts it by √(2δ K_ii), where K_kl = ⟨g_k, F⁻¹ g_l⟩,

and the step that is sought keeps a promise to each of them:

    Δ = argmax ⟨g_r, Δ⟩    s.t. ½ ΔᵀFΔ ≤ δ  and  ⟨g_i, Δ⟩ ≤ -t β_i √(2δ K_ii)  for all i.

t is the greatest share in [0, 1] of all promises that can be kept together. Let d be Δ in coordinates in which the
trust region is the unit ball, and u_i the unit vector of -g_i there. Then a promise is ⟨u_i, d⟩ ≥ t β_i. With p, the
shortest vector for which ⟨u_i, p⟩ ≥ β_i for all i,

    t   = min(1, 1 / ‖p‖)                              and 0 where there is no p: costs that oppose each other
    Δ_C = p, stretched to the boundary                 the joint cost step; Δ_c where C = 1
    μ   = the least share of Δ_C with which (1 - μ) Δ_r + μ Δ_C keeps all promises.

Where 0 < t < 1, t p is the only step of the trust region that keeps the share t of all promises: it is the solution,
and reward has no say. Where t = 0, the solution is the best reward step that raises no cost.

All of these steps are combinations of the natural gradients x_k = F⁻¹ g_k, so there are C + 1 numbers to find. They
come from the promises that hold with equality, and all sets of promises are tried: nothing iterates to a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

MOST = 12
"""Costs; there are 2^C sets of promises."""
TINY = 1e-20
"""A gradient whose ⟨g, F⁻¹ g⟩ is not above this counts as zero, as it does for one cost."""
PARALLEL = 1e-5
"""Unit vectors that span so little in a direction count as dependent. A Gram matrix of doubles knows 1e-8 at best."""
SLACK = 1e-9
"""Rounding may cost a promise this much of the best decrease."""


@dataclass(frozen=True)
class JointStep:
    """The step Δ = Σ_k w_k x_k, and how it came about."""

    weights: Array
    """(C + 1,) w_k of the natural gradients, that of reward first."""
    kept: float
    """t, the share of all promises that is kept; 1 where they can be kept together."""
    mu: float
    """Share of the joint cost step Δ_C; NaN where the step is the exact solution."""
    decreases: Array
    """(C,) by how much each cost falls to first order, as a share of its best decrease; 0 without a gradient."""


def joint_step(
    gram: ArrayLike, betas: ArrayLike, target_kl: float, solver: Literal["convex", "exact"] = "convex"
) -> JointStep:
    """The best reward step that cuts every cost by β_i of its best decrease, as far as this is possible.

    Args:
        gram: (C + 1, C + 1) K_kl = ⟨g_k, x_l⟩ with reward first, best summed in double precision. It is symmetrised,
            and directions in which it is not positive, as after a few conjugate gradients, are left out.
        betas: (C,) the safety biases β_i in [0, 1], or one for all; 0 means that the cost must not rise.
        target_kl: δ.
        solver: "exact" for the optimum; "convex" for (1 - μ) Δ_r + μ Δ_C, as in the paper. Without Δ_C, because
            costs oppose each other, the latter is the former.

    Both costs below oppose reward a little, and neither minds the other:

    >>> step = joint_step([[1, 0.2, 0.2], [0.2, 1, 0], [0.2, 0, 1]], 0.5, target_kl=0.5, solver="exact")
    >>> step.kept, step.decreases.round(6).tolist(), step.weights.round(3).tolist()
    (1.0, [0.5, 0.5], [0.737, -0.647, -0.647])
    """
    gram, betas = _checked(gram, betas)
    if not np.isfinite(gram).all():  # the caller skips a step that is not finite
        return JointStep(np.full(len(gram), math.nan), math.nan, math.nan, np.full(len(betas), math.nan))
    squares = np.diagonal(gram)
    alive = squares > TINY
    scale = np.where(alive, 1 / np.sqrt(np.where(alive, squares, 1.0)), 0.0)
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * (gram + gram.T) / 2 * scale)
    positive = eigenvalues > PARALLEL**2
    root, vectors = np.sqrt(eigenvalues[positive]), vectors[:, positive]
    gradients = alive[:, None] * _unit(vectors * root)
    u, costs = -gradients[1:], alive[1:]
    d, kept, mu = _solve(gradients[0], u[costs], betas[costs], solver)
    # Of all weights that make d, those of the least norm: they treat equal costs alike.
    weights = math.sqrt(2 * target_kl) * scale * ((vectors / root) @ d)
    return JointStep(weights, kept, mu, u @ d)


def _checked(gram: ArrayLike, betas: ArrayLike) -> tuple[Array, Array]:
    """Both as arrays of the shapes that they should have."""
    gram = np.asarray(gram, dtype=np.float64)
    count = len(gram) - 1 if gram.ndim == 2 else 0
    if count < 1 or gram.shape != (count + 1, count + 1):
        raise ValueError(f"gram must be square, with a row for reward and one for each cost; got shape {gram.shape}")
    if count > MOST:
        raise ValueError(f"SB-TRPO takes {MOST} costs at most, got {count}: add up those that belong together")
    betas = np.asarray(betas, dtype=np.float64)
    if betas.shape not in ((), (count,)) or not ((betas >= 0) & (betas <= 1)).all():
        raise ValueError(f"betas must be one number in [0, 1], or one for each of the {count} costs; got {betas}")
    return gram, np.broadcast_to(betas, count)


# ---- in the unit ball: r and the rows of u are unit vectors, a promise is ⟨u_i, d⟩ ≥ its level -----------------------


def _solve(r: Array, u: Array, betas: Array, solver: str) -> tuple[Array, float, float]:
    """d, t and μ."""
    promises, top = _Promises(u), float(betas.max(initial=0.0))
    equal = promises.shortest(np.ones_like(betas))  # None where costs oppose each other
    # Along p. Where all β are 0, so is p; the joint step is then what it tends to as they fall to 0 together.
    joint = promises.shortest(betas / top) if top else equal
    length = math.inf if joint is None else float(np.linalg.norm(joint))
    kept = 1.0 if not top or top * length <= 1 + SLACK else 1 / (top * length)
    if solver == "convex" and joint is not None:
        joint = _unit(joint)
        mu = _least_share(u @ r, u @ joint, kept * betas)
        return (1 - mu) * r + mu * joint, kept, mu
    if joint is not None and kept < 1:
        return _unit(joint), kept, math.nan
    # Opposed costs leave steps across them. They must not be lost because the costs are opposed but nearly.
    return promises.best(r, kept * betas, SLACK if equal is not None else 4 * PARALLEL), kept, math.nan


def _least_share(of_reward: Array, of_joint: Array, levels: Array) -> float:
    """μ, from what Δ_r and Δ_C give to every promise; Δ_C keeps all of them."""
    short = levels - of_reward
    missed = short > 0
    shares = short[missed] / np.maximum(of_joint - of_reward, short)[missed]
    return float(shares.max(initial=0.0))


class _Promises:
    """All sets of independent promises, any of which may be those that hold with equality."""

    def __init__(self, u: Array) -> None:
        self.u = u
        self.faces: list[tuple[NDArray[np.intp], Array, Array]] = []
        """For sets of k promises: (S, k) which; (S, k, k) from their levels to coordinates in (S, k, M) a basis."""
        for k in range(min(u.shape) + 1):
            sets = np.array(list(combinations(range(len(u)), k)), dtype=np.intp)
            left, singular, basis = np.linalg.svd(u[sets], full_matrices=False)
            independent = (singular > SLACK).all(axis=1)
            left, singular = left[independent], singular[independent]
            self.faces.append((sets[independent], left / singular[:, None], basis[independent]))

    def points(self, levels: Array) -> Iterator[tuple[Array, Array]]:
        """For all sets the shortest vector for which they hold with equality, (S, M), and the basis of their span."""
        for sets, inverse, basis in self.faces:
            yield np.einsum("sk,skm->sm", np.einsum("sik,si->sk", inverse, levels[sets]), basis), basis

    def kept_by(self, points: Array, levels: Array, slack: float) -> NDArray[np.bool_]:
        """By which of the points (S, M), up to a slack that grows with vectors beyond the ball."""
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return np.asarray((points @ self.u.T >= levels - slack * np.maximum(1.0, lengths)).all(axis=1))

    def shortest(self, levels: Array) -> Array | None:
        """p, the shortest vector that keeps all promises, or None where it would be longer than 1 / PARALLEL.

        It is also the shortest vector for which some independent promises hold with equality.
        """
        points = np.concatenate([point for point, _ in self.points(levels)])
        points = points[self.kept_by(points, levels, SLACK)]
        lengths = np.linalg.norm(points, axis=1)
        return points[np.argmin(lengths)] if lengths.min(initial=math.inf) < 1 / PARALLEL else None

    def best(self, r: Array, levels: Array, slack: float) -> Array:
        """argmax ⟨r, d⟩ over the steps in the ball that keep all promises, of which there must be one.

        It is the shortest vector for which some independent promises hold with equality, plus what leads from there
        to the boundary along the rest of r. Without a rest several steps may be best, and the shortest is taken.
        """
        candidates = []
        for points, basis in self.points(levels):
            inside = np.linalg.norm(points, axis=1) <= 1 + 2 * SLACK
            points, basis = points[inside], basis[inside]
            rest = np.broadcast_to(r, points.shape)
            for _ in range(2):  # once more, for the rounding of a short rest
                rest = rest - np.einsum("sk,skm->sm", np.einsum("skm,sm->sk", basis, rest), basis)
            rest = np.where(np.linalg.norm(rest, axis=1, keepdims=True) > SLACK, _unit(rest), 0.0)
            reach = np.sqrt(np.maximum(0.0, 1 - np.sum(points * points, axis=1, keepdims=True)))
            candidates += [points, points + reach * rest]  # the former so that p is among them, rounding or not
        steps = np.concatenate(candidates)
        steps = steps[self.kept_by(steps, levels, slack)]
        rewards = steps @ r
        steps = steps[rewards >= rewards.max() - 1e-12]
        lengths = np.linalg.norm(steps, axis=1)
        return np.asarray(steps[np.argmin(lengths)] / max(1.0, lengths.min()))


def _unit(vectors: Array) -> Array:
    """Vectors (..., M) of length 1; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
