"""Constrained Update Projection (Yang et al., 2022): improve reward, then step back towards feasibility.

    1. PPO on A_r, with the critics: π_old → π_1
    2. loss = λ κ_c mean(ρ A_c) + mean KL(π_θ ‖ π_1),     κ_c = (1 - γ λ_CUP) / (1 - γ),     from π_1 on

ρ is relative to the rollout policy in both stages. The multiplier λ follows the violation, up to `multiplier_max`:
0.2 in the published code, 2 in the paper's table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import BySlopes, Fixed, Minibatch, Samples, Slopes
from sbtrpo.algorithms.multipliers import adam_multiplier
from sbtrpo.algorithms.ppo import PPO


@dataclass(frozen=True, kw_only=True)
class Projection(Fixed):
    """Of stage 2."""

    weight: float
    """λ κ_c"""


class CUP(PPO):
    """PPO, and a projection after it."""

    make_multiplier = staticmethod(adam_multiplier)

    @override
    def prepare(self, samples: Samples, cost: float, progress: float) -> Projection:
        c, multiplier = self.config, self.lagrange(cost)
        weight = multiplier * (1 - c.gamma * c.cup_lambda) / (1 - c.gamma)
        return Projection(weight=weight, report={"multiplier": multiplier})

    @override
    def passes(self, samples: Samples, rate: float, fixed: Fixed) -> Diagnostics:
        first = super().passes(samples, rate, fixed)
        second = replace(samples, reference=self.actor.mean(samples.obs))  # of π_1
        count, kl, _ = self.run(second, rate, None, fixed, BySlopes(self.projection_slopes))
        return {**first, "projection_passes": float(count), "projection_kl_at_stop": kl}

    def projection_slopes(self, batch: Minibatch) -> Slopes:
        """Of stage 2's loss."""
        weight: float = batch.fixed.weight
        return Slopes(ratio=weight * batch.double(batch.advantage_c), kl=batch.xp.ones_like(batch.ratio))
