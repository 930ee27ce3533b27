"""Trust Region Policy Optimisation (Schulman et al., 2015): reward alone.

Δ = argmax ⟨g_r, Δ⟩  s.t. ½ ΔᵀFΔ ≤ δ,     then shrink until the surrogate does not fall and KL ≤ δ
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    natural_gradient_step,
)


class TRPO(TrustRegionMethod[TrustRegionSettings]):
    """The yardstick: it does not know of the cost."""

    title = "TRPO"
    summary = "reward alone: the yardstick of what ignoring cost gains"
    source = "Schulman et al., Trust Region Policy Optimization (ICML 2015); code: SafePO"
    Settings = TrustRegionSettings

    constraints_taken = None
    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        weights = 1.0, *(0.0 for _ in self.names)
        return natural_gradient_step(region, gradients, weights, self.settings)
