"""Augmented Proximal Policy Optimisation (Dai et al., 2023): a multiplier and a quadratic penalty.

    f = max(0, λ + σ (Ĵ_c - limit))
    loss = [ -mean min(ρ A_r, clip(ρ) A_r) + f mean max(ρ A_c, clip(ρ) A_c) ] / (1 + f)

f is the slope of the augmented Lagrangian's penalty (σ/2) max(0, Ĵ_c - limit + λ/σ)². Loss and multiplier are the
authors', on the PPO of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from sbtrpo.algorithms.first_order import FirstOrderMethod, Fixed, Minibatch, Samples, Slopes, clipped
from sbtrpo.algorithms.multipliers import adam_multiplier


@dataclass(frozen=True, kw_only=True)
class Penalty(Fixed):
    """Of an update."""

    factor: float
    """f"""


class APPO(FirstOrderMethod):
    """PPO with both objectives clipped."""

    make_multiplier = staticmethod(adam_multiplier)

    @override
    def prepare(self, samples: Samples, cost: float, progress: float) -> Penalty:
        multiplier = self.lagrange(cost)
        factor = max(0.0, multiplier + self.config.sigma * (cost - self.config.cost_limit))
        return Penalty(factor=factor, report={"multiplier": multiplier, "penalty": factor})

    @override
    def slopes(self, batch: Minibatch) -> Slopes:
        f, clip, ratio = batch.fixed.factor, self.config.clip, batch.ratio
        gain, harm = clipped(ratio, batch.advantage_r, clip), -clipped(ratio, -batch.advantage_c, clip)
        return Slopes((f * harm - gain) / (1 + f))
