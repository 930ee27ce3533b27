"""Constrained Update Projection (Yang et al., 2022): improve reward, then step back towards feasibility.

    1. PPO on A_r, with the critics: π_old → π_1
    2. loss = λ κ_c mean(ρ A_c) + mean KL(π_θ ‖ π_1),     κ_c = (1 - γ λ_CUP) / (1 - γ),     from π_1 on

ρ is relative to the rollout policy in both stages. The multiplier λ follows the violation, up to `multiplier_max`:
0.2 in the published code, 2 in the paper's table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sbtrpo.algorithms.base import Diagnostics
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

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """λ."""
        return {"multiplier": self.lagrange(cost)}

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
        assert self.multiplier is not None
        gamma = self.config.gamma
        weight = self.multiplier.value * (1 - gamma * self.settings.cup_lambda) / (1 - gamma)
        return Slopes(ratio=weight * found.rows.advantage_c.astype(np.float64), kl=np.ones_like(found.ratio))
