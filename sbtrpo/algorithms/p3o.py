"""Penalised Proximal Policy Optimisation (Zhang et al., 2022): an exact penalty in place of a multiplier.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) + (1 - γ)(Ĵ_c - limit))

Both means are a minibatch's, so the noise of a small mean decides whether the hinge is active.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from sbtrpo.algorithms.first_order import FirstOrderMethod, Fixed, Minibatch, Samples, Slopes, clipped
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import module_of


@dataclass(frozen=True, kw_only=True)
class Hinge(Fixed):
    """The penalty of an update."""

    weight: float
    """κ"""
    offset: float
    """What the violation adds to the surrogate."""


class P3O(FirstOrderMethod):
    """PPO with a hinge on the cost."""

    @override
    def prepare(self, samples: Samples, cost: float, progress: float) -> Hinge:
        weight, offset = self.config.penalty, (1 - self.config.gamma) * (cost - self.config.cost_limit)
        return Hinge(weight=weight, offset=offset, report={"penalty": weight})

    @override
    def slopes(self, batch: Minibatch) -> Slopes:
        ratio, clip = batch.ratio, self.config.clip
        hinge: Hinge = batch.fixed
        reward_alone = -clipped(ratio, batch.advantage_r, clip)
        with_cost = reward_alone - hinge.weight * clipped(ratio, -batch.advantage_c, clip)
        active = pessimistic_cost(ratio, batch.advantage_c, clip) + hinge.offset > 0
        return Slopes(batch.xp.where(active, with_cost, reward_alone))


def pessimistic_cost(ratio: Array, advantage: Array, clip: float) -> Array:
    """The greater of the plain and the clipped surrogate, sample by sample: mean max(ρ A_c, clip(ρ) A_c)."""
    xp = module_of(ratio)
    return xp.maximum(ratio * advantage, xp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
