"""Constraint-Rectified Policy Optimisation (Xu et al., 2021): one objective at a time.

    Ĵ_c ≤ limit + tolerance: maximise L_r;     otherwise: minimise L_c

Each by TRPO's step. At limit 0 without tolerance: cost alone until a window of episodes is free of it, then reward.
"""

from __future__ import annotations

from torch import Tensor

from sbtrpo.algorithms.trust_region import Proposal, TrustRegion, TrustRegionMethod, natural_gradient_step


class CRPO(TrustRegionMethod):
    """TRPO that switches between reward and cost."""

    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """The best step for the objective whose turn it is."""
        feasible = cost <= self.config.cost_limit + self.config.tolerance
        weights = (1.0, 0.0) if feasible else (0.0, -1.0)
        return natural_gradient_step(region, gradients, weights, self.config, {"feasible": float(feasible)})
