"""Lagrange multipliers: numbers that follow the violation of the cost limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sbtrpo.config.settings import MethodSettings, for_each, setting


class Multiplier(Protocol):
    """A multiplier λ ≥ 0."""

    value: float

    def update(self, cost: float) -> float:
        """Take in the episodes' cost; returns λ."""

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""


class AdamMultiplier:
    """One step of Adam (β 0.9 and 0.999, ε 1e-8) per update on the loss -λ (cost - limit), then λ into [0, upper].

    At limit 0 the gradient never points down, so λ never falls:

    >>> multiplier = AdamMultiplier(limit=0.0, init=0.001, rate=0.035)
    >>> [round(multiplier.update(cost), 3) for cost in (0.0, 10.0, 10.0, 0.0)]
    [0.001, 0.027, 0.057, 0.082]
    """

    def __init__(self, limit: float, init: float, rate: float, upper: float | None = None) -> None:
        self.limit, self.rate, self.upper = limit, rate, math.inf if upper is None else upper
        self.value = init
        self._mean = self._square = 0.0
        self._steps = 0

    def update(self, cost: float) -> float:
        """Take in the episodes' cost; returns λ."""
        gradient = -(cost - self.limit)
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient * gradient
        mean, square = self._mean / (1 - 0.9**self._steps), self._square / (1 - 0.999**self._steps)
        moved = self.value - self.rate * mean / (math.sqrt(square) + 1e-8)
        self.value = min(max(moved, 0.0), self.upper)
        return self.value

    def state_dict(self) -> dict[str, Any]:
        """λ and Adam's moments."""
        return {"value": self.value, "mean": self._mean, "square": self._square, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.value, self._mean, self._square = float(state["value"]), float(state["mean"]), float(state["square"])
        self._steps = int(state["steps"])


class PIDMultiplier:
    """λ = max(0, K_p P + I + K_d D): proportional, integral and derivative terms of the violation.

    The integral is the bare sum of K_i times the violations, not below 0; P is a moving average of the violation, and D
    how much a moving average of the cost has risen over the last `DELAY` updates.
    """

    DELAY = 10
    SMOOTHING = 0.95

    def __init__(self, limit: float, init: float, kp: float, ki: float, kd: float) -> None:
        self.limit, self.kp, self.ki, self.kd = limit, kp, ki, kd
        self.value = self._integral = init
        self._violation = self._cost = 0.0
        self._past = [0.0]

    def update(self, cost: float) -> float:
        """Take in the episodes' cost; returns λ."""
        keep, violation = self.SMOOTHING, cost - self.limit
        self._integral = max(0.0, self._integral + self.ki * violation)
        self._violation = keep * self._violation + (1 - keep) * violation
        self._cost = keep * self._cost + (1 - keep) * cost
        rise = max(0.0, self._cost - self._past[0])
        self.value = max(0.0, self.kp * self._violation + self._integral + self.kd * rise)
        self._past = [*self._past, self._cost][-self.DELAY :]
        return self.value

    def state_dict(self) -> dict[str, Any]:
        """The three terms and the costs of the last updates."""
        return {
            "value": self.value,
            "integral": self._integral,
            "violation": self._violation,
            "cost": self._cost,
            "past": list(self._past),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.value, self._integral = float(state["value"]), float(state["integral"])
        self._violation, self._cost = float(state["violation"]), float(state["cost"])
        self._past = [float(past) for past in state["past"]]


@dataclass(frozen=True)
class Limited(MethodSettings):
    """Settings of the methods that read the cost of recent episodes and hold it to a limit."""

    cost_limit: float | tuple[float, ...] = setting(0.0, least=0, span=">= 0", advice="use 0 for a hard constraint")
    """On an episode's cost; one value, or one for each constraint."""
    first_cost_zero: bool = setting(
        True,
        corrected=False,
        quirk="The published methods read a cost of 0 in their first update, whatever happened; corrected, the actual"
        " cost.",
    )
    """Whether methods read a cost of 0 in their first update; paper: yes."""

    @property
    def limit(self) -> float:
        """The limit of a single constraint."""
        return for_each("cost_limit", self.cost_limit, 1)[0]


@dataclass(frozen=True)
class Lagrangian(Limited):
    """Settings of the methods whose multiplier is moved by Adam."""

    multiplier_init: float = setting(1e-3, least=0)
    """The multiplier at the start."""
    multiplier_rate: float = setting(0.035, least=0)
    """Learning rate of the multiplier."""
    multiplier_max: float | None = setting(None, least=0)
    """The multiplier's upper bound; not set, it has none."""

    def multiplier(self) -> Multiplier:
        """The multiplier at the start of a run."""
        return AdamMultiplier(self.limit, self.multiplier_init, self.multiplier_rate, self.multiplier_max)


@dataclass(frozen=True)
class Controlled(Limited):
    """Settings of a method whose multiplier is a PID controller."""

    multiplier_init: float = setting(1e-3, least=0)
    """The multiplier and its integral at the start."""
    pid_kp: float = setting(0.1, least=0)
    """Weight of the violation's moving average."""
    pid_ki: float = setting(0.01, least=0)
    """Weight of the violation in the running sum."""
    pid_kd: float = setting(0.01, least=0)
    """Weight of the cost's recent rise."""

    def multiplier(self) -> Multiplier:
        """The multiplier at the start of a run."""
        return PIDMultiplier(self.limit, self.multiplier_init, self.pid_kp, self.pid_ki, self.pid_kd)
