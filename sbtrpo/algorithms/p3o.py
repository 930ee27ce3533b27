"""Penalised Proximal Policy Optimisation (Zhang et al., 2022): an exact penalty in place of a multiplier.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) + (1 - γ)(Ĵ_c - limit))

Both means are a minibatch's, so the noise of a small mean decides whether the hinge is active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, as_costs
from sbtrpo.algorithms.first_order import Doubles, Pass, Samples, Slopes, clipped
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.stack import Floats


@dataclass(frozen=True)
class P3OSettings(PPOSettings, Limited):
    """With the weight of the hinge."""

    penalty: float = setting(10.0, least=0)
    """Weight of the hinge."""


P = TypeVar("P", bound=P3OSettings)


class P3O(PPO[P]):
    """PPO with a hinge on the cost."""

    title = "P3O"
    summary = "PPO with an exact penalty: a hinge on the clipped cost surrogate"
    source = "Zhang et al., Penalized Proximal Policy Optimization (IJCAI 2022); code: the C-TRPO authors'"
    Settings: ClassVar[type[MethodSettings]] = P3OSettings

    constraints_taken = 1
    _weight = _offset = 0.0

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Diagnostics:
        (cost,) = as_costs(costs)
        excess = cost - self.settings.limit
        self._weight, self._offset = self.settings.penalty, (1 - self.config.gamma) * excess
        return {"penalty": self._weight}

    def slopes(self, found: Pass) -> Slopes:
        """Of the clipped surrogate and, where it is active, of the hinge."""
        ratio, rows, clip = found.ratio, found.rows, self.settings.clip
        slope = -clipped(ratio, rows.advantage_r, clip)
        if pessimistic_cost(ratio, rows.advantage_c, clip) + self._offset > 0:
            slope = slope - self._weight * clipped(ratio, -rows.advantage_c, clip)
        return Slopes(slope)


def pessimistic_cost(ratio: Doubles, advantage: Floats, clip: float) -> float:
    """The greater of the plain and the clipped surrogate, sample by sample: mean max(ρ A_c, clip(ρ) A_c)."""
    return float(np.maximum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage).mean())
