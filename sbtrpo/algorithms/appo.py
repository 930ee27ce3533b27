"""Augmented Proximal Policy Optimisation (Dai et al., 2023): a multiplier and a quadratic penalty.

    f = max(0, λ + σ (Ĵ_c - limit))
    loss = [ -mean min(ρ A_r, clip(ρ) A_r) + f mean max(ρ A_c, clip(ρ) A_c) ] / (1 + f)

f is the slope of the augmented Lagrangian's penalty (σ/2) max(0, Ĵ_c - limit + λ/σ)². Loss and multiplier are the
authors', on the PPO of this package.
"""

from __future__ import annotations

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import FirstOrderMethod, Pass, Samples, Slopes, clipped
from sbtrpo.algorithms.multipliers import adam_multiplier


class APPO(FirstOrderMethod):
    """PPO with both objectives clipped."""

    make_multiplier = staticmethod(adam_multiplier)
    _factor = 0.0

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """λ and the factor f."""
        multiplier = self.lagrange(cost)
        self._factor = max(0.0, multiplier + self.config.sigma * (cost - self.config.cost_limit))
        return {"multiplier": multiplier, "penalty": self._factor}

    def slopes(self, found: Pass) -> Slopes:
        """Of both clipped surrogates."""
        f, clip, rows = self._factor, self.config.clip, found.rows
        gain, harm = clipped(found.ratio, rows.advantage_r, clip), -clipped(found.ratio, -rows.advantage_c, clip)
        return Slopes((f * harm - gain) / (1 + f))
