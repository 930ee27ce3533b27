"""Projection-Based Constrained Policy Optimisation (Yang et al., 2020): a reward step, then a projection.

    Δ = sqrt(2δ/q) x - max(0, (sqrt(2δ/q) r + c) / s) p

with CPO's x, p, q, r, s and c. In the published code the first term runs along F x, the plain gradient
(`pcpo_plain_gradient`), and nothing guards against q = 0 or s = 0. At limit 0 the factor of p is about Ĵ_c / s, in the
hundreds or more: the line search shrinks all of it, and what is left is a cost step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.cpo import EPSILON, acceptance
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


@dataclass(frozen=True)
class PCPOSettings(TrustRegionSettings, Limited):
    """With the plain gradient of the published code, or the natural one."""

    line_search_tries: int = 200
    pcpo_plain_gradient: bool = setting(
        True,
        corrected=False,
        quirk="The published reward step runs along the plain gradient where the method has the natural one; corrected,"
        " the latter, and no division by zero.",
    )
    """A reward step along the plain gradient; paper: yes."""


class PCPO(TrustRegionMethod[PCPOSettings]):
    """TRPO's step, projected onto the linear model of the constraint."""

    title = "PCPO"
    summary = "a reward step, then a projection onto the linear model of the constraint"
    source = "Yang et al., Projection-Based Constrained Policy Optimization (ICLR 2020); code: SafePO"
    Settings = PCPOSettings

    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        settings, (cost,) = self.settings, costs
        c = cost - settings.limit
        solution = solve(region, gradients, settings)
        x, p = solution.x
        q = float(x @ solution.product[0])
        r, s = float(gradients[0] @ p), float(gradients[1] @ p)
        reach = to_boundary(q, settings.target_kl)
        if settings.pcpo_plain_gradient:
            first = reach * solution.product[0]
            back = divided(math.sqrt(2 * settings.target_kl / q) * r + c if q > 0 else math.nan, s)
        else:
            first = reach * x
            back = divided(reach * r + c, s + EPSILON)
        step = first - max(0.0, back) * p if back == back else first * math.nan
        curvature = math.nan if settings.pcpo_plain_gradient else solution.curvature(reach, -max(0.0, back))
        facts = {"projection": max(0.0, back)}
        return Proposal(step, acceptance(region, c, 0, settings.target_kl), solution, curvature, facts)


def divided(numerator: float, denominator: float) -> float:
    """A quotient as floating-point numbers have it, infinite or NaN where the denominator is 0."""
    if denominator == 0.0:
        return numerator * math.inf
    return numerator / denominator
