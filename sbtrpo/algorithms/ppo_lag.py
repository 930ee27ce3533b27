"""PPO-Lag (Ray et al., 2019): PPO on the Lagrangian.

    λ ← λ + rate · Adam(Ĵ_c - limit), λ ≥ 0
    A = (A_r - λ A_c) / (1 + λ)
    loss = -mean min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)

At limit 0 the multiplier never falls.
"""

from __future__ import annotations

from typing_extensions import override

from sbtrpo.algorithms.first_order import Fixed, Samples
from sbtrpo.algorithms.multipliers import adam_multiplier
from sbtrpo.algorithms.ppo import PPO


class PPOLag(PPO):
    """PPO whose advantage has the cost in it."""

    make_multiplier = staticmethod(adam_multiplier)

    @override
    def prepare(self, samples: Samples, cost: float, progress: float) -> Fixed:
        multiplier = self.lagrange(cost)
        samples.advantage_r = (samples.advantage_r - multiplier * samples.advantage_c) / (1 + multiplier)
        return Fixed(report={"multiplier": multiplier})
