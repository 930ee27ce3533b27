"""Constraint-Rectified Policy Optimisation (Xu et al., 2021): one objective at a time.

    Ĵ_c ≤ limit + tolerance: maximise L_r;     otherwise: minimise L_c

Each by TRPO's step. At limit 0 without tolerance: cost alone until a window of episodes is free of it, then reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    natural_gradient_step,
)
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class CRPOSettings(TrustRegionSettings, Limited):
    """With the tolerance that decides which objective has its turn."""

    tolerance: float = setting(0.0, least=0)
    """Excess over the limit that still allows a reward step."""


class CRPO(TrustRegionMethod[CRPOSettings]):
    """TRPO that switches between reward and cost."""

    title = "CRPO"
    summary = "reward steps while the cost is within its limit, cost steps while it is not"
    source = "Xu et al., CRPO: A New Approach for Safe RL with Convergence Guarantee (ICML 2021); in OmniSafe as OnCRPO"
    Settings = CRPOSettings

    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        (cost,) = costs
        feasible = cost <= self.settings.limit + self.settings.tolerance
        weights = (1.0, 0.0) if feasible else (0.0, -1.0)
        return natural_gradient_step(region, gradients, weights, self.settings, {"feasible": float(feasible)})
