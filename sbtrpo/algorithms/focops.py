"""First Order Constrained Optimisation in Policy Space (Zhang et al., 2020).

The optimal policy in a KL ball around the old one is π* ∝ π_old exp(A / temperature); the network is drawn to it by

    loss = mean_i [ KL(π_θ ‖ π_old)_i - ρ_i A_i / temperature ] 1[KL_i ≤ δ],      A = (A_r - Σ λ_i A_ci) / (1 + Σ λ_i)

with 0 ≤ λ_i ≤ 2. In the published code KL_i 1_i is a column and ρ_i A_i a row, so that the mean runs over all pairs:

    loss = mean_i KL_i 1_i - mean_i 1_i · mean_j ρ_j A_j / temperature              (`focops_broadcast`)
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from sbtrpo.algorithms.base import Costs, by_constraint
from sbtrpo.algorithms.first_order import (
    FirstOrderMethod,
    FirstOrderSettings,
    Fixed,
    Minibatch,
    Samples,
    Slopes,
    for_several,
)
from sbtrpo.algorithms.multipliers import Lagrangian
from sbtrpo.algorithms.ppo_lag import mix
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class FOCOPSSettings(FirstOrderSettings, Lagrangian):
    """With the temperature of the optimal policy, and the published broadcast."""

    multiplier_rate: float = setting(0.035, least=0, paper="–")
    multiplier_max: float | None = 2.0
    temperature: float = setting(1.5, above=0)
    """What divides the advantage in the optimal policy's exponent."""
    focops_broadcast: bool = setting(
        True,
        corrected=False,
        quirk="Two published shapes broadcast to a square, so that the trust region's indicator scales all samples"
        " alike; corrected, it gates each sample by itself.",
    )
    """The indicator of the trust region scales all samples alike; paper: yes."""


class FOCOPS(FirstOrderMethod[FOCOPSSettings]):
    """PPO-Lag's advantages, in a loss of its own."""

    title = "FOCOPS"
    summary = "the optimal policy in a KL ball, projected back to the network by its own loss"
    source = "Zhang et al., First Order Constrained Optimization in Policy Space (NeurIPS 2020); code: SafePO"
    Settings = FOCOPSSettings

    constraints_taken = None

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Fixed:
        multipliers = self.lagrange(costs)
        mix(samples, multipliers)
        return Fixed(report=by_constraint("multiplier", multipliers, self.names))

    @override
    @for_several("target_kl", "focops_broadcast", "temperature")
    def slopes(self, batch: Minibatch) -> Slopes:
        everywhere = batch.xp.ones_like(batch.kl)
        inside = everywhere * (batch.kl <= self.settings.target_kl)  # counts as a constant
        gate = everywhere * inside.mean(axis=-1, keepdims=True) if self.settings.focops_broadcast else inside
        return Slopes(ratio=-gate * batch.advantage_r / self.settings.temperature, kl=inside)
