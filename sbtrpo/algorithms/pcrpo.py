"""PCRPO (Gu et al., 2024): reward, cost or both, with their conflict projected away.

    Ĵ_c > limit + h⁺:  the cost step Δ_c
    Ĵ_c < limit + h⁻:  the reward step Δ_r
    between, with v_r = Δ_r and v_c = Δ_c:
    ⟨v_r, v_c⟩ ≥ 0:  Δ = ½ (v_r + v_c)
    otherwise:       Δ = ½ (v_r⁺ + v_c⁺),     v_r⁺ = v_r - ⟨v_r, v_c⟩ / ‖v_c‖² v_c,     v_c⁺ likewise

The line search asks for the KL alone. The slacks h⁺ and h⁻ are our choice: no code of the authors is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Trial
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    solve,
    to_boundary,
)


@dataclass(frozen=True)
class PCRPOSettings(TrustRegionSettings, Limited):
    """With the slacks between the regimes."""

    slack_above: float = 5.0
    """Excess over the limit beyond which only cost counts."""
    slack_below: float = -5.0
    """(Negative) excess below which only reward counts."""

    def check(self, gamma: float) -> None:
        """The regimes lie in order."""
        if self.slack_below > self.slack_above:
            raise ValueError(f"slack_below ({self.slack_below}) must not lie above slack_above ({self.slack_above})")


class PCRPO(TrustRegionMethod[PCRPOSettings]):
    """Both natural steps and their sum without conflict."""

    title = "PCRPO"
    summary = "reward, cost, or both steps with their conflict projected away, by how far the cost is from its limit"
    source = "Gu et al., Balance Reward and Safety Optimization for Safe RL (AAAI 2024); constants are our choice"
    Settings = PCRPOSettings

    may_stall = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        settings, excess = self.settings, self.settings.excess(costs)
        solution = solve(region, gradients, settings)
        gram = solution.x @ solution.product.T
        v_r = to_boundary(float(gram[0, 0]), settings.target_kl) * solution.x[0]
        v_c = -to_boundary(float(gram[1, 1]), settings.target_kl) * solution.x[1]
        if excess > settings.slack_above:
            regime, step = -1.0, v_c
        elif excess < settings.slack_below:
            regime, step = 1.0, v_r
        else:
            regime, step = 0.0, without_conflict(v_r, v_c)

        def acceptable(trial: Trial) -> bool:
            return trial.kl <= settings.target_kl

        return Proposal(step, acceptable, solution, math.nan, {"regime": regime})


def without_conflict(v_r: Tensor, v_c: Tensor) -> Tensor:
    """Half the sum of both steps, each rid of what works against the other."""
    inner = v_r @ v_c
    if float(inner) < 0:
        v_r, v_c = v_r - inner / (v_c @ v_c) * v_c, v_c - inner / (v_r @ v_r) * v_r
    return torch.add(v_r, v_c) / 2
