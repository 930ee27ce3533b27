"""Proximal Policy Optimisation (Schulman et al., 2017): reward alone.

loss = -mean min(ρ A_r, clip(ρ, 1 - ε, 1 + ε) A_r)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from typing_extensions import override

from sbtrpo.algorithms.first_order import FirstOrderMethod, FirstOrderSettings, Minibatch, Slopes, clipped, for_several
from sbtrpo.config.settings import MethodSettings, setting


@dataclass(frozen=True)
class PPOSettings(FirstOrderSettings):
    """With the range of ratios."""

    clip: float = setting(0.2, least=0, most=1)
    """Ratios count up to 1 ± this."""


C = TypeVar("C", bound=PPOSettings)


class PPO(FirstOrderMethod[C]):
    """The yardstick: it does not know of the cost."""

    title = "PPO"
    summary = "reward alone: the yardstick of what ignoring cost gains"
    source = "Schulman et al., Proximal Policy Optimization Algorithms (2017); code: SafePO"
    Settings: ClassVar[type[MethodSettings]] = PPOSettings

    constraints_taken: ClassVar[int | None] = None

    @override
    @for_several("clip")
    def slopes(self, batch: Minibatch) -> Slopes:
        return Slopes(-clipped(batch.ratio, batch.advantage_r, self.settings.clip))
