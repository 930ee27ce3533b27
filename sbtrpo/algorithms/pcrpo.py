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

import torch
from torch import Tensor

from sbtrpo.algorithms.base import Trial
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion, TrustRegionMethod, solve, to_boundary


class PCRPO(TrustRegionMethod):
    """Both natural steps and their sum without conflict."""

    may_stall = True

    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """The step of the regime that the cost is in."""
        config, excess = self.config, cost - self.config.cost_limit
        solution = solve(region, gradients, config)
        gram = solution.x @ solution.product.T
        v_r = to_boundary(float(gram[0, 0]), config.target_kl) * solution.x[0]
        v_c = -to_boundary(float(gram[1, 1]), config.target_kl) * solution.x[1]
        if excess > config.slack_above:
            regime, step = -1.0, v_c
        elif excess < config.slack_below:
            regime, step = 1.0, v_r
        else:
            regime, step = 0.0, without_conflict(v_r, v_c)

        def acceptable(trial: Trial) -> bool:
            return trial.kl <= config.target_kl

        return Proposal(step, acceptable, solution, math.nan, {"regime": regime})


def without_conflict(v_r: Tensor, v_c: Tensor) -> Tensor:
    """Half the sum of both steps, each rid of what works against the other."""
    inner = v_r @ v_c
    if float(inner) < 0:
        v_r, v_c = v_r - inner / (v_c @ v_c) * v_c, v_c - inner / (v_r @ v_r) * v_r
    return torch.add(v_r, v_c) / 2
