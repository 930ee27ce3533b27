"""Reward Constrained Policy Optimisation (Tessler et al., 2019), as the published code has it: TRPO-Lag's step, taken.

There is no line search: the full natural gradient step is applied, and the KL may exceed δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.trpo_lag import TRPOLag, TRPOLagSettings
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class RCPOSettings(TRPOLagSettings):
    """TRPO-Lag's without a line search."""

    line_search_tries: int = 1
    multiplier_init: float = setting(1e-3, least=0, paper="–")
    multiplier_rate: float = setting(0.035, least=0, paper="–")


class RCPO(TRPOLag):
    """TRPO-Lag without questions."""

    title = "RCPO"
    summary = "natural gradient steps on reward less a multiple of cost, without a line search"
    source = "Tessler et al., Reward Constrained Policy Optimization (ICLR 2019); code: SafePO"
    Settings = RCPOSettings

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        return replace(super().propose(region, gradients, costs), acceptable=lambda trial: True)
