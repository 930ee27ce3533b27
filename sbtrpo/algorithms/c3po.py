"""Central Path Proximal Policy Optimisation (Milosevic et al., 2025): P3O along a central path.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) - min(b, ω b)),    b = limit - Ĵ_c

κ grows linearly over the run, from `penalty_start` of its final value on. Below the limit, a step may use up the share
ω of what is left. The critics are fitted afterwards, the reward's with double weight and without clipping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, SeparateCritics
from sbtrpo.algorithms.first_order import Fixed, Samples
from sbtrpo.algorithms.p3o import P3O, Hinge, P3OSettings
from sbtrpo.config.settings import setting
from sbtrpo.nets.critics import critic_losses
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import rows_per_minibatch


@dataclass(frozen=True)
class C3POSettings(P3OSettings, SeparateCritics):
    """With the central path."""

    target_kl: float = 0.01
    policy_batch: int = 128
    policy_passes: int = 10
    penalty: float = 50.0
    """Weight of the hinge at the end of training."""
    penalty_start: float = setting(0.1, least=0, paper="–")
    """Share of the penalty at the start."""
    omega: float = setting(0.05, least=0, most=1)
    """Share of the room below the limit that a step may use up."""
    stale_critic_clip: bool = setting(
        True,
        corrected=False,
        quirk="The published gradient clipping of the actor counts the critics' gradients of the epoch before;"
        " corrected, the actor's alone.",
    )
    """The clipping of the policy's gradient counts the critics' last one; paper: yes."""

    @override
    def scheduled(self, progress: float) -> dict[str, float]:
        penalty = self.penalty * (self.penalty_start + (1 - self.penalty_start) * progress)
        return {**super().scheduled(progress), "penalty": penalty}


class C3PO(P3O[C3POSettings]):
    """P3O with another hinge, and critics on their own."""

    title = "C3PO"
    summary = "PPO with a growing hinge penalty that begins before the limit is reached"
    source = "Milosevic et al., Central Path Proximal Policy Optimization (2025); code: the C-TRPO authors'"
    Settings = C3POSettings

    _stale: Any = 0.0
    """Norm of the critics' last gradient, which the published clipping counts, and shrinks, with the actor's."""

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Hinge:
        (cost,) = costs
        c = self.settings
        room = c.limit - cost
        weight = c.scheduled(progress)["penalty"]
        return Hinge(weight=weight, offset=-min(room, c.omega * room), report={"penalty": weight})

    @override
    def passes(self, samples: Samples, rate: float, fixed: Fixed) -> Diagnostics:
        self._stale = self.form.double(self._stale)
        count, kl, _ = self.run(samples, rate, None, fixed, self.objective)
        facts = {"passes": float(count), "kl_at_stop": kl}
        if self.critics is None or not len(samples.targets):
            return facts
        c, weights = self.settings, (2.0, 1.0)[: len(samples.targets)]
        rows = rows_per_minibatch(c.critic_batch, c.critic_minibatches, len(samples))
        data = self.form.tensor(samples.obs), self.form.tensor(samples.targets)
        losses, self._stale = self.critics.fit(
            *data, rows, c.critic_passes, c.critic_l2, math.inf, self.orders, weights
        )
        return {**facts, **critic_losses(losses)}

    @override
    def clip(self, gradients: list[Array]) -> None:
        beside = self._stale if self.settings.stale_critic_clip else 0.0
        self._stale *= self.form.clip(gradients, self.settings.max_grad_norm, beside)

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "stale": float(self._stale)}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._stale = float(state["stale"])
