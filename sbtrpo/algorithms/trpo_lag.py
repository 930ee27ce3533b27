"""TRPO-Lag (Ray et al., 2019): TRPO on the Lagrangian.

    λ ← λ + rate · Adam(Ĵ_c - limit), λ ≥ 0
    objective = (L_r - λ L_c) / (1 + λ)

At limit 0 the multiplier never falls.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sbtrpo.algorithms.multipliers import Lagrangian
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    natural_gradient_step,
)


@dataclass(frozen=True)
class TRPOLagSettings(TrustRegionSettings, Lagrangian):
    """TRPO's and the multiplier's."""


class TRPOLag(TrustRegionMethod[TRPOLagSettings]):
    """TRPO whose objective has the cost in it."""

    title = "TRPO-Lag"
    summary = "TRPO on reward less a multiple of cost; the multiplier follows the violation"
    source = "Ray et al., Benchmarking Safe Exploration in Deep RL (2019); code: SafePO"
    Settings = TRPOLagSettings

    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """λ, and the best step for what follows from it."""
        multiplier = self.lagrange(cost)
        weights = 1 / (1 + multiplier), -multiplier / (1 + multiplier)
        return natural_gradient_step(region, gradients, weights, self.settings, {"multiplier": multiplier})
