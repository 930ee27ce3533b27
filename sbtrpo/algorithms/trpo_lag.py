"""TRPO-Lag (Ray et al., 2019): TRPO on the Lagrangian.

    λ ← λ + rate · Adam(Ĵ_c - limit), λ ≥ 0
    objective = (L_r - λ L_c) / (1 + λ)

At limit 0 the multiplier never falls.
"""

from __future__ import annotations

from torch import Tensor

from sbtrpo.algorithms.multipliers import adam_multiplier
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion, TrustRegionMethod, natural_gradient_step


class TRPOLag(TrustRegionMethod):
    """TRPO whose objective has the cost in it."""

    make_multiplier = staticmethod(adam_multiplier)
    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """λ, and the best step for what follows from it."""
        multiplier = self.lagrange(cost)
        weights = 1 / (1 + multiplier), -multiplier / (1 + multiplier)
        return natural_gradient_step(region, gradients, weights, self.config, {"multiplier": multiplier})
