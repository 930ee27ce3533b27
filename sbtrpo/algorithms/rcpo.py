"""Reward Constrained Policy Optimisation (Tessler et al., 2019), as the published code has it: TRPO-Lag's step, taken.

There is no line search: the full natural gradient step is applied, and the KL may exceed δ.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from sbtrpo.algorithms.trpo_lag import TRPOLag
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion


class RCPO(TRPOLag):
    """TRPO-Lag without questions."""

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """TRPO-Lag's step, acceptable whatever it gives."""
        return replace(super().propose(region, gradients, cost), acceptable=lambda trial: True)
