"""C-TRPO (Milosevic et al., 2024): a trust region that ends where the constraint does.

    Ĵ_c < limit (barrier):    maximise L_r within D(θ) = KL + β φ(α) ≤ δ
                              α = (L_c(θ) - L_c(θ_old)) / (1 - γ),     b = limit - Ĵ_c,
                              φ(α) = α + (b - α) ln((b - α) / b),      ∞ where α ≥ b
    otherwise (recovery):     minimise L_c within KL ≤ δ

D's Hessian at θ_old is F + (β/b) ∇α ∇αᵀ. At limit 0 recovery never ends: reward is never optimised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Trial
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    natural_gradient_step,
)
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class CTRPOSettings(TrustRegionSettings, Limited):
    """With the barrier and the way out of recovery."""

    per_task: ClassVar[Mapping[str, Mapping[str, Any]]] = {"SafetyHopperVelocity-v1": {"critic_batch": 128}}

    critic_batch: int = 256
    barrier: float = setting(1.0, least=0)
    """Weight of the barrier in the divergence."""
    hysteresis: float = setting(1.0, least=0, most=1)
    """Share of the limit below which the cost must fall for recovery to end."""

    def check(self, gamma: float) -> None:
        """It divides by 1 - γ."""
        if gamma == 1:
            raise ValueError("c_trpo divides by 1 - gamma; use a gamma below 1")


class CTRPO(TrustRegionMethod[CTRPOSettings]):
    """TRPO with a barrier, or on the cost."""

    title = "C-TRPO"
    summary = "TRPO whose divergence has a barrier at the cost limit; pure cost descent beyond it"
    source = (
        "Milosevic et al., Embedding Safety into RL: a New Take on Trust Region Methods (2024);"
        " code: the C-TRPO authors'"
    )
    Settings = CTRPOSettings

    may_stall = True
    _recovering = True

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        (cost,) = costs
        settings, limit = self.settings, self.settings.limit
        share = settings.hysteresis if self._recovering else 1.0
        self._recovering = not cost < share * limit
        facts = {"recovering": float(self._recovering)}
        if self._recovering:
            return natural_gradient_step(region, gradients, (0.0, -1.0), settings, facts)

        room, old = limit - cost, region.old
        slope = gradients[1] / (1 - self.config.gamma)  # ∇α

        def hessian(vectors: Tensor) -> Tensor:
            return settings.barrier / room * (vectors @ slope)[:, None] * slope

        def divergence(trial: Trial) -> float:
            alpha = (trial.surrogate_c - old.surrogate_c) / (1 - self.config.gamma)
            return trial.kl + settings.barrier * barrier(alpha, room)

        return natural_gradient_step(region, gradients, (1.0, 0.0), settings, facts, hessian, divergence)

    def state_dict(self) -> dict[str, Any]:
        """The mode, which the next one depends on."""
        return {**super().state_dict(), "recovering": self._recovering}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._recovering = bool(state["recovering"])


def barrier(alpha: float, room: float) -> float:
    """φ(α), the divergence of the entropy of what is left below the limit.

    >>> barrier(0.0, 1.0), barrier(1.0, 1.0)
    (0.0, inf)
    """
    if not alpha < room:
        return math.inf
    return alpha + (room - alpha) * math.log((room - alpha) / room)
