"""PPO-Lag (Ray et al., 2019): PPO on the Lagrangian.

    λ ← λ + rate · Adam(Ĵ_c - limit), λ ≥ 0
    A = (A_r - λ A_c) / (1 + λ)
    loss = -mean min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)

At limit 0 the multiplier never falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import Samples
from sbtrpo.algorithms.multipliers import Lagrangian
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config.settings import MethodSettings


@dataclass(frozen=True)
class PPOLagSettings(PPOSettings, Lagrangian):
    """PPO's and the multiplier's."""


L = TypeVar("L", bound=PPOSettings)


class PPOLag(PPO[L]):
    """PPO whose advantage has the cost in it."""

    title = "PPO-Lag"
    summary = "PPO on reward less a multiple of cost; the multiplier follows the violation"
    source = "Ray et al., Benchmarking Safe Exploration in Deep RL (2019); code: SafePO"
    Settings: ClassVar[type[MethodSettings]] = PPOLagSettings

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """λ, and the advantages that follow from it."""
        multiplier = self.lagrange(cost)
        mix(samples, multiplier)
        return {"multiplier": multiplier}


def mix(samples: Samples, multiplier: float) -> None:
    """Put A = (A_r - λ A_c) / (1 + λ) in the place of the reward's advantage."""
    advantage = (samples.advantage_r - multiplier * samples.advantage_c) / (1 + multiplier)
    samples.advantage_r = advantage.astype(np.float32)
