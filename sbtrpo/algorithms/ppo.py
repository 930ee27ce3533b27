"""Proximal Policy Optimisation (Schulman et al., 2017): reward alone.

loss = -mean min(ρ A_r, clip(ρ, 1 - ε, 1 + ε) A_r)
"""

from __future__ import annotations

from sbtrpo.algorithms.first_order import FirstOrderMethod, Pass, Slopes, clipped


class PPO(FirstOrderMethod):
    """The yardstick: it does not know of the cost."""

    def slopes(self, found: Pass) -> Slopes:
        """Of the clipped surrogate."""
        return Slopes(-clipped(found.ratio, found.rows.advantage_r, self.config.clip))
