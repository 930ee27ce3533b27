"""Projection-Based Constrained Policy Optimisation (Yang et al., 2020): a reward step, then a projection.

    Δ = sqrt(2δ/q) x - max(0, (sqrt(2δ/q) r + c) / s) p

with CPO's x, p, q, r, s and c. In the published code the first term runs along F x, the plain gradient
(`pcpo_plain_gradient`), and nothing guards against q = 0 or s = 0. At limit 0 the factor of p is about Ĵ_c / s, in the
hundreds or more: the line search shrinks all of it, and what is left is a cost step.
"""

from __future__ import annotations

import math

from torch import Tensor

from sbtrpo.algorithms.cpo import EPSILON, acceptance
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion, TrustRegionMethod, solve, to_boundary


class PCPO(TrustRegionMethod):
    """TRPO's step, projected onto the linear model of the constraint."""

    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """The projected step."""
        config, c = self.config, cost - self.config.cost_limit
        solution = solve(region, gradients, config)
        x, p = solution.x
        q = float(x @ solution.product[0])
        r, s = float(gradients[0] @ p), float(gradients[1] @ p)
        reach = to_boundary(q, config.target_kl)
        if config.pcpo_plain_gradient:
            first = reach * solution.product[0]
            back = divided(math.sqrt(2 * config.target_kl / q) * r + c if q > 0 else math.nan, s)
        else:
            first = reach * x
            back = divided(reach * r + c, s + EPSILON)
        step = first - max(0.0, back) * p if back == back else first * math.nan
        curvature = math.nan if config.pcpo_plain_gradient else solution.curvature(reach, -max(0.0, back))
        facts = {"projection": max(0.0, back)}
        return Proposal(step, acceptance(region, c, 0, config), solution, curvature, facts)


def divided(numerator: float, denominator: float) -> float:
    """A quotient as floating-point numbers have it, infinite or NaN where the denominator is 0."""
    if denominator == 0.0:
        return numerator * math.inf
    return numerator / denominator
