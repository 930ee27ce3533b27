"""CPPO-PID (Stooke et al., 2020): PPO-Lag whose multiplier is a PID controller of the violation.

    λ = max(0, K_p P + I + K_d D)

At limit 0 the integral I never falls and has no bound: λ grows for as long as there is any cost.
"""

from __future__ import annotations

from sbtrpo.algorithms.multipliers import pid_multiplier
from sbtrpo.algorithms.ppo_lag import PPOLag


class CPPOPID(PPOLag):
    """PPO-Lag, controlled."""

    make_multiplier = staticmethod(pid_multiplier)
