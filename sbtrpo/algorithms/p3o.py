"""Penalised Proximal Policy Optimisation (Zhang et al., 2022): an exact penalty in place of a multiplier.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) + (1 - γ)(Ĵ_c - limit))

Both means are a minibatch's, so the noise of a small mean decides whether the hinge is active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from typing_extensions import override

from sbtrpo.algorithms.base import Costs
from sbtrpo.algorithms.first_order import Fixed, Minibatch, Samples, Slopes, clipped, for_several
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import module_of


@dataclass(frozen=True)
class P3OSettings(PPOSettings, Limited):
    """With the weight of the hinge."""

    penalty: float = setting(10.0, least=0)
    """Weight of the hinge."""


@dataclass(frozen=True, kw_only=True)
class Hinge(Fixed):
    """The penalty of an update."""

    weight: float
    """κ"""
    offset: float
    """What the violation adds to the surrogate."""


P = TypeVar("P", bound=P3OSettings)


class P3O(PPO[P]):
    """PPO with a hinge on the cost."""

    title = "P3O"
    summary = "PPO with an exact penalty: a hinge on the clipped cost surrogate"
    source = "Zhang et al., Penalized Proximal Policy Optimization (IJCAI 2022); code: the C-TRPO authors'"
    Settings: ClassVar[type[MethodSettings]] = P3OSettings

    constraints_taken = 1

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Hinge:
        (cost,) = costs
        weight, offset = self.settings.penalty, (1 - self.config.gamma) * (cost - self.settings.limit)
        return Hinge(weight=weight, offset=offset, report={"penalty": weight})

    @override
    @for_several("clip")
    def slopes(self, batch: Minibatch) -> Slopes:
        ratio, clip = batch.ratio, self.settings.clip
        hinge: Hinge = batch.fixed
        reward_alone = -clipped(ratio, batch.advantage_r, clip)
        with_cost = reward_alone - hinge.weight * clipped(ratio, -batch.advantage_c, clip)
        active = pessimistic_cost(ratio, batch.advantage_c, clip) + hinge.offset > 0
        return Slopes(batch.xp.where(active, with_cost, reward_alone))


def pessimistic_cost(ratio: Array, advantage: Array, clip: float) -> Array:
    """The greater of the plain and the clipped surrogate, sample by sample: mean max(ρ A_c, clip(ρ) A_c), (..., 1)."""
    xp = module_of(ratio)
    greater: Array = xp.maximum(ratio * advantage, xp.clip(ratio, 1 - clip, 1 + clip) * advantage)
    return greater.mean(axis=-1, keepdims=True)
