"""PPO-Lag (Ray et al., 2019): PPO on the Lagrangian.

    λ ← λ + rate · Adam(Ĵ_c - limit), λ ≥ 0
    A = (A_r - λ A_c) / (1 + λ)
    loss = -mean min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)

At limit 0 the multiplier never falls.
"""

from __future__ import annotations

import numpy as np

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import Samples
from sbtrpo.algorithms.multipliers import adam_multiplier
from sbtrpo.algorithms.ppo import PPO


class PPOLag(PPO):
    """PPO whose advantage has the cost in it."""

    make_multiplier = staticmethod(adam_multiplier)

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """λ, and the advantages that follow from it."""
        multiplier = self.lagrange(cost)
        advantage = (samples.advantage_r - multiplier * samples.advantage_c) / (1 + multiplier)
        samples.advantage_r = advantage.astype(np.float32)
        return {"multiplier": multiplier}
