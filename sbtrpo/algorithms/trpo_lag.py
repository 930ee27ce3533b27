"""TRPO-Lag (Ray et al., 2019): TRPO on the Lagrangian.

    λ_i ← λ_i + rate · Adam(Ĵ_ci - limit_i), λ_i ≥ 0             for each constraint i
    objective = (L_r - Σ λ_i L_ci) / (1 + Σ λ_i)

At limit 0 a multiplier never falls.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, by_constraint
from sbtrpo.algorithms.multipliers import Lagrangian, lagrangian_weights
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

    constraints_taken = None
    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        multipliers = self.lagrange(costs)
        facts = by_constraint("multiplier", multipliers, self.names)
        return natural_gradient_step(region, gradients, lagrangian_weights(multipliers), self.settings, facts)
