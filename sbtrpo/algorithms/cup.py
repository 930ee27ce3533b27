"""Constrained Update Projection (Yang et al., 2022): improve reward, then step back towards feasibility.

    1. PPO on A_r, with the critics: π_old → π_1
    2. loss = Σ λ_i κ_c mean(ρ A_ci) + mean KL(π_θ ‖ π_1),     κ_c = (1 - γ λ_CUP) / (1 - γ),     from π_1 on

ρ is relative to the rollout policy in both stages. A constraint's multiplier λ_i follows its violation, up to
`multiplier_max`: 0.2 in the published code, 2 in the paper's table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, by_constraint
from sbtrpo.algorithms.first_order import Pass, Samples, Slopes
from sbtrpo.algorithms.multipliers import Lagrangian
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class CUPSettings(PPOSettings, Lagrangian):
    """With the second stage's weight and the multiplier's bound."""

    policy_batch: int = setting(64, least=1, paper=20_000)
    multiplier_max: float | None = setting(
        0.2,
        least=0,
        paper=2.0,
        corrected=2.0,
        quirk="The published code bounds CUP's multiplier by 0.2, the paper's table by 2.0.",
    )
    """The multiplier's upper bound."""
    cup_lambda: float = setting(0.95, least=0, most=1)
    """GAE's lambda in the weight of the second stage."""

    def check(self, gamma: float) -> None:
        """It divides by 1 - γ."""
        if gamma == 1:
            raise ValueError("cup divides by 1 - gamma; use a gamma below 1")


class CUP(PPO[CUPSettings]):
    """PPO, and a projection after it."""

    title = "CUP"
    summary = "a PPO step for reward, then a penalised step back towards feasibility"
    source = "Yang et al., Constrained Update Projection (NeurIPS 2022); code: SafePO"
    Settings = CUPSettings
    _projecting = False

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Diagnostics:
        return by_constraint("multiplier", self.lagrange(costs), self.names)

    def passes(self, samples: Samples, rate: float) -> Diagnostics:
        """Stage 1, then stage 2 from where it ended, on the actor alone."""
        first = super().passes(samples, rate)
        self._projecting = True
        try:
            count, kl, _ = self.run(replace(samples, reference=self.actor.mean(samples.obs)), rate, None)
        finally:
            self._projecting = False
        return {**first, "projection_passes": float(count), "projection_kl_at_stop": kl}

    def slopes(self, found: Pass) -> Slopes:
        """PPO's in stage 1, the projection's in stage 2."""
        if not self._projecting:
            return super().slopes(found)
        gamma, of_costs = self.config.gamma, found.rows.advantages[1:].astype(np.float64)
        weights = [value * (1 - gamma * self.settings.cup_lambda) / (1 - gamma) for value in self.multipliers.values]
        terms = [weight * of_cost for weight, of_cost in zip(weights, of_costs, strict=True)]
        return Slopes(ratio=functools.reduce(np.add, terms), kl=np.ones_like(found.ratio))
