"""Augmented Proximal Policy Optimisation (Dai et al., 2023): a multiplier and a quadratic penalty.

    f = max(0, λ + σ (Ĵ_c - limit))
    loss = [ -mean min(ρ A_r, clip(ρ) A_r) + f mean max(ρ A_c, clip(ρ) A_c) ] / (1 + f)

f is the slope of the augmented Lagrangian's penalty (σ/2) max(0, Ĵ_c - limit + λ/σ)². Loss and multiplier are the
authors', on the PPO of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.first_order import Fixed, Minibatch, Samples, Slopes, clipped, for_several
from sbtrpo.algorithms.multipliers import Lagrangian
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class APPOSettings(PPOSettings, Lagrangian):
    """With the weight of the quadratic penalty."""

    multiplier_rate: float = 0.2
    sigma: float = setting(0.1, least=0)
    """Weight of the quadratic penalty."""


@dataclass(frozen=True, kw_only=True)
class Penalty(Fixed):
    """Of an update."""

    factor: float
    """f"""


class APPO(PPO[APPOSettings]):
    """PPO with both objectives clipped."""

    title = "APPO"
    summary = "PPO on an augmented Lagrangian: a multiplier and a quadratic penalty"
    source = "Dai et al., Augmented Proximal Policy Optimization for Safe RL (AAAI 2023); the authors' loss on our PPO"
    Settings = APPOSettings

    constraints_taken = 1

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Penalty:
        (cost,) = costs
        (multiplier,) = self.lagrange(costs)
        factor = max(0.0, multiplier + self.settings.sigma * (cost - self.settings.limit))
        return Penalty(factor=factor, report={"multiplier": multiplier, "penalty": factor})

    @override
    @for_several("clip")
    def slopes(self, batch: Minibatch) -> Slopes:
        f, clip, ratio = batch.fixed.factor, self.settings.clip, batch.ratio
        gain, harm = clipped(ratio, batch.advantage_r, clip), -clipped(ratio, -batch.advantage_c, clip)
        return Slopes((f * harm - gain) / (1 + f))
