"""Constrained Update Projection (Yang et al., 2022): improve reward, then step back towards feasibility.

    1. PPO on A_r, with the critics: π_old → π_1
    2. loss = Σ λ_i κ_c mean(ρ A_ci) + mean KL(π_θ ‖ π_1),     κ_c = (1 - γ λ_CUP) / (1 - γ),     from π_1 on

ρ is relative to the rollout policy in both stages. A constraint's multiplier λ_i follows its violation, up to
`multiplier_max`: 0.2 in the published code, 2 in the paper's table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, by_constraint
from sbtrpo.algorithms.first_order import BySlopes, Fixed, Minibatch, Samples, Slopes
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


@dataclass(frozen=True, kw_only=True)
class Projection(Fixed):
    """Of stage 2."""

    weights: tuple[float, ...]
    """λ_i κ_c of each constraint."""


class CUP(PPO[CUPSettings]):
    """PPO, and a projection after it."""

    title = "CUP"
    summary = "a PPO step for reward, then a penalised step back towards feasibility"
    source = "Yang et al., Constrained Update Projection (NeurIPS 2022); code: SafePO"
    Settings = CUPSettings

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Projection:
        gamma, multipliers = self.config.gamma, self.lagrange(costs)
        weights = tuple(value * (1 - gamma * self.settings.cup_lambda) / (1 - gamma) for value in multipliers)
        return Projection(weights=weights, report=by_constraint("multiplier", multipliers, self.names))

    @override
    def passes(self, samples: Samples, rate: float, fixed: Fixed) -> Diagnostics:
        first = super().passes(samples, rate, fixed)
        from_there = replace(samples, reference=self.actor.mean(samples.obs))  # of π_1
        count, kl, _ = self.run(from_there, rate, None, fixed, BySlopes(self.projection_slopes))
        return {**first, "projection_passes": float(count), "projection_kl_at_stop": kl}

    def projection_slopes(self, batch: Minibatch) -> Slopes:
        """Of stage 2's loss."""
        fixed: Projection = batch.fixed
        of_costs = batch.double(batch.advantages[1:])
        terms = [weight * of_cost for weight, of_cost in zip(fixed.weights, of_costs, strict=True)]
        return Slopes(ratio=sum(terms[1:], start=terms[0]), kl=batch.xp.ones_like(batch.ratio))
