"""Constrained Policy Optimisation (Achiam et al., 2017).

    max ⟨g, Δ⟩  s.t. c + ⟨b, Δ⟩ ≤ 0,  ½ ΔᵀFΔ ≤ δ,          g = g_r, b = g_c, c = Ĵ_c - limit

With x = F⁻¹g, p = F⁻¹b, q = xᵀFx, r = ⟨g, p⟩, s = ⟨b, p⟩, A = q - r²/s, B = 2δ - c²/s, the cases are

    4, 3   no cost gradient, or the whole region is feasible:  TRPO's reward step
    2, 1   the plane cuts the region:                          Δ = (x - ν p) / λ from the dual
    0      no point of the region is feasible:                 the cost step

As published the dual is solved with r of the wrong sign and λ clipped into intervals that may be empty, which makes it
negative (`cpo_as_published`); corrected, cases 1 and 2 are the closed form of the problem's optimum. c is an episode's
cost and b the slope of a mean over steps, so c is usually far beyond what a step can mend: at limit 0 the method
descends on cost for as long as there is any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Trial
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    solve,
    to_boundary,
)
from sbtrpo.config.settings import setting

EPSILON = 1e-8


@dataclass(frozen=True)
class CPOSettings(TrustRegionSettings, Limited):
    """With the published dual, or the closed form."""

    cpo_as_published: bool = setting(
        True,
        corrected=False,
        quirk="The published dual has a sign wrong and projects onto an empty interval: where the constraint can be met"
        " the step violates it; corrected, the closed-form optimum of CPO's problem.",
    )
    """The published dual with its wrong sign and projection; paper: yes."""


class CPO(TrustRegionMethod[CPOSettings]):
    """The best step that the linear model of the cost allows."""

    title = "CPO"
    summary = "the best reward step in the trust region that a linear model says is feasible"
    source = "Achiam et al., Constrained Policy Optimization (ICML 2017); code: SafePO"
    Settings = CPOSettings

    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        settings, c = self.settings, self.settings.excess(costs)
        solution = solve(region, gradients, settings)
        g, b = gradients
        q = float(solution.x[0] @ solution.product[0])
        r, s = float(g @ solution.x[1]), float(b @ solution.x[1])
        case = which_case(float(b @ b), c, s, settings.target_kl)
        if case >= 3:
            weights = to_boundary(q, settings.target_kl), 0.0
        elif case == 0:
            weights = 0.0, -to_boundary(s, settings.target_kl)
        elif settings.cpo_as_published:
            weights = published_dual(q, r, s, c, settings.target_kl)
        else:
            weights = optimum(q, r, s, c, settings.target_kl)
        step = weights[0] * solution.x[0] + weights[1] * solution.x[1]
        curvature = solution.curvature(*weights)
        return Proposal(
            step, acceptance(region, c, case, settings.target_kl), solution, curvature, {"case": float(case)}
        )


def which_case(bb: float, c: float, s: float, target_kl: float) -> int:
    """Which of the cases: from ‖b‖², the violation c and s = bᵀF⁻¹b."""
    if bb <= 1e-6 and c < 0:
        return 4
    reachable = 2 * target_kl - c * c / (s + EPSILON) >= 0
    if c < 0:
        return 2 if reachable else 3
    return 1 if reachable else 0


def acceptance(region: TrustRegion, c: float, case: int, target_kl: float) -> Callable[[Trial], bool]:
    """What the line search asks: no less reward where the start is feasible, no more cost than is left, and the KL."""
    old = region.old

    def acceptable(trial: Trial) -> bool:
        if case > 1 and trial.surrogate_r < old.surrogate_r:
            return False
        return trial.surrogate_c - old.surrogate_c <= max(-c, 0.0) and trial.kl <= target_kl

    return acceptable


def published_dual(q: float, r: float, s: float, c: float, target_kl: float) -> tuple[float, float]:
    """Weights of x and p as the published code has them in cases 1 and 2."""
    A, B = q - r * r / (s + EPSILON), 2 * target_kl - c * c / (s + EPSILON)
    ratio = r / (c + EPSILON)
    low_a, high_a, low_b, high_b = (0.0, ratio, ratio, math.inf) if c < 0 else (ratio, math.inf, 0.0, ratio)
    # A bound from below and then one from above: where the interval is empty, the upper end comes out.
    lam_a = min(max(root(A / B if B else math.inf), low_a), high_a)
    lam_b = min(max(root(q / (2 * target_kl)), low_b), high_b)
    f_a = -0.5 * (A / (lam_a + EPSILON) + B * lam_a) - r * c / (s + EPSILON)
    f_b = -0.5 * (q / (lam_b + EPSILON) + 2 * target_kl * lam_b)
    lam = lam_a if f_a >= f_b else lam_b
    nu = max(lam * c - r, 0.0) / (s + EPSILON)
    return 1 / (lam + EPSILON), -nu / (lam + EPSILON)


def root(x: float) -> float:
    """A square root that is NaN where there is none, which inexact natural gradients may ask for."""
    return math.sqrt(x) if x >= 0 else math.nan


def optimum(q: float, r: float, s: float, c: float, target_kl: float) -> tuple[float, float]:
    """Weights of x and p in the solution of CPO's problem.

    With the unit vectors u_g and u_b of x and p in the metric F, and t = -c / sqrt(2 δ s) the share of the radius at
    which the plane cuts: the reward step where that is feasible, otherwise the point of the boundary that lies on the
    plane and fills up with what of u_g is orthogonal to u_b.
    """
    if s <= 0 or q <= 0:
        return (to_boundary(q, target_kl), 0.0) if q > 0 else (0.0, min(0.0, -c / s) if s > 0 else 0.0)
    radius = math.sqrt(2 * target_kl)
    along_g, along_b = radius / math.sqrt(q), radius / math.sqrt(s)
    cosine, t = max(-1.0, min(1.0, r / math.sqrt(q * s))), -c / (radius * math.sqrt(s))
    if t <= -1:
        return 0.0, -along_b
    if cosine <= t:
        return along_g, 0.0
    if 1 - cosine * cosine <= 1e-12:
        return 0.0, t * along_b
    sideways = math.sqrt((1 - t * t) / (1 - cosine * cosine))
    return sideways * along_g, (t - sideways * cosine) * along_b
