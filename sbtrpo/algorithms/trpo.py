"""Trust Region Policy Optimisation (Schulman et al., 2015): reward alone.

Δ = argmax ⟨g_r, Δ⟩  s.t. ½ ΔᵀFΔ ≤ δ,     then shrink until the surrogate does not fall and KL ≤ δ
"""

from __future__ import annotations

from torch import Tensor

from sbtrpo.algorithms.trust_region import Proposal, TrustRegion, TrustRegionMethod, natural_gradient_step


class TRPO(TrustRegionMethod):
    """The yardstick: it does not know of the cost."""

    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """The best reward step."""
        return natural_gradient_step(region, gradients, (1.0, 0.0), self.config)
