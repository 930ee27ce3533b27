"""PPO-Lag (Ray et al., 2019): PPO on the Lagrangian.

    λ_i ← λ_i + rate · Adam(Ĵ_ci - limit_i), λ_i ≥ 0             for each constraint i
    A = (A_r - Σ λ_i A_ci) / (1 + Σ λ_i)
    loss = -mean min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)

At limit 0 a multiplier never falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from typing_extensions import override

from sbtrpo.algorithms.base import Costs, by_constraint
from sbtrpo.algorithms.first_order import Fixed, Samples
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

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Fixed:
        multipliers = self.lagrange(costs)
        mix(samples, multipliers)
        return Fixed(report=by_constraint("multiplier", multipliers, self.names))


def mix(samples: Samples, multipliers: Sequence[float]) -> None:
    """Put A = (A_r - Σ λ_i A_ci) / (1 + Σ λ_i) in the place of the reward's advantage."""
    advantage, *of_costs = samples.advantages
    for multiplier, of_cost in zip(multipliers, of_costs, strict=True):
        advantage = advantage - multiplier * of_cost
    samples.advantage_r = advantage / (1 + sum(multipliers))
