"""Central Path Proximal Policy Optimisation (Milosevic et al., 2025): P3O along a central path.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) - min(b, ω b)),    b = limit - Ĵ_c

κ grows linearly over the run, from `penalty_start` of its final value on. Below the limit, a step may use up the share
ω of what is left. The critics are fitted afterwards, the reward's with double weight and without clipping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.algorithms.first_order import Fixed, Samples
from sbtrpo.algorithms.p3o import P3O, Hinge
from sbtrpo.nets.critics import critic_losses
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import rows_per_minibatch


class C3PO(P3O):
    """P3O with another hinge, and critics on their own."""

    _stale: Any = 0.0
    """Norm of the critics' last gradient, which the published clipping counts, and shrinks, with the actor's."""

    @override
    def prepare(self, samples: Samples, cost: float, progress: float) -> Hinge:
        c = self.config
        room = c.cost_limit - cost
        weight = c.penalty * (c.penalty_start + (1 - c.penalty_start) * progress)
        return Hinge(weight=weight, offset=-min(room, c.omega * room), report={"penalty": weight})

    @override
    def passes(self, samples: Samples, rate: float, fixed: Fixed) -> Diagnostics:
        count, kl, _ = self.run(samples, rate, None, fixed, self.objective)
        facts = {"passes": float(count), "kl_at_stop": kl}
        if self.critics is None or not len(samples.targets):
            return facts
        c, weights = self.config, (2.0, 1.0)[: len(samples.targets)]
        rows = rows_per_minibatch(c.critic_batch, getattr(c, "critic_minibatches", 0), len(samples))
        obs, targets = self.form.tensor(samples.obs), self.form.tensor(samples.targets)
        losses, self._stale = self.critics.fit(
            obs, targets, rows, c.critic_passes, c.critic_l2, math.inf, self.orders, weights
        )
        return {**facts, **critic_losses(losses)}

    @override
    def clip(self, gradients: list[Array]) -> None:
        beside = self._stale if self.config.stale_critic_clip else 0.0
        self._stale = self._stale * self.form.clip(gradients, self.config.max_grad_norm, beside)

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "stale": float(self._stale)}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._stale = float(state["stale"])
