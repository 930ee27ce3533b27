"""CPPO-PID (Stooke et al., 2020): PPO-Lag whose multipliers are PID controllers of their violations.

    λ_i = max(0, K_p P + I + K_d D)

At limit 0 the integral I never falls and has no bound: λ_i grows for as long as there is any cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbtrpo.algorithms.multipliers import Controlled
from sbtrpo.algorithms.ppo import PPOSettings
from sbtrpo.algorithms.ppo_lag import PPOLag
from sbtrpo.config.settings import setting


@dataclass(frozen=True)
class CPPOPIDSettings(PPOSettings, Controlled):
    """PPO's and the controller's."""

    pid_kd: float = setting(0.01, least=0, paper=0.1)
    clip: float = setting(0.2, least=0, most=1, paper="–")


class CPPOPID(PPOLag[CPPOPIDSettings]):
    """PPO-Lag, controlled."""

    title = "CPPO-PID"
    summary = "PPO-Lag whose multiplier is a PID controller of the violation"
    source = "Stooke et al., Responsive Safety in RL by PID Lagrangian Methods (ICML 2020); code: SafePO"
    Settings = CPPOPIDSettings
