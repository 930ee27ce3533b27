"""Penalised Proximal Policy Optimisation (Zhang et al., 2022): an exact penalty in place of a multiplier.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) + (1 - γ)(Ĵ_c - limit))

Both means are a minibatch's, so the noise of a small mean decides whether the hinge is active.
"""

from __future__ import annotations

import numpy as np

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import Doubles, FirstOrderMethod, Pass, Samples, Slopes, clipped
from sbtrpo.nets.stack import Floats


class P3O(FirstOrderMethod):
    """PPO with a hinge on the cost."""

    _weight = _offset = 0.0

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """κ, and what the violation adds to the hinge."""
        self._weight, self._offset = self.config.penalty, (1 - self.config.gamma) * (cost - self.config.cost_limit)
        return {"penalty": self._weight}

    def slopes(self, found: Pass) -> Slopes:
        """Of the clipped surrogate and, where it is active, of the hinge."""
        ratio, rows, clip = found.ratio, found.rows, self.config.clip
        slope = -clipped(ratio, rows.advantage_r, clip)
        if pessimistic_cost(ratio, rows.advantage_c, clip) + self._offset > 0:
            slope = slope - self._weight * clipped(ratio, -rows.advantage_c, clip)
        return Slopes(slope)


def pessimistic_cost(ratio: Doubles, advantage: Floats, clip: float) -> float:
    """The greater of the plain and the clipped surrogate, sample by sample: mean max(ρ A_c, clip(ρ) A_c)."""
    return float(np.maximum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage).mean())
