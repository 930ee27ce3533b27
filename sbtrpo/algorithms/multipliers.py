"""Lagrange multipliers: numbers that follow the violation of a cost limit, one for each constraint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import override

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


class Multipliers(list[Multiplier]):
    """One multiplier for each constraint, none of which depends on another's cost; empty for a method without them."""

    @property
    def values(self) -> list[float]:
        """Every λ."""
        return [multiplier.value for multiplier in self]

    def update(self, costs: Sequence[float]) -> list[float]:
        """Take in the episodes' cost of each constraint; returns every λ."""
        return [multiplier.update(cost) for multiplier, cost in zip(self, costs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on. A single multiplier has a key of its own, as in older checkpoints."""
        states = [multiplier.state_dict() for multiplier in self]
        if len(states) == 1:
            return {"multiplier": states[0]}
        return {"multipliers": states} if states else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a mapping that has the entries of a `state_dict` among others."""
        states = [state["multiplier"]] if len(self) == 1 else state["multipliers"] if self else []
        for multiplier, saved in zip(self, states, strict=True):
            multiplier.load_state_dict(saved)


def lagrangian_weights(multipliers: Sequence[float]) -> tuple[float, ...]:
    """Weights of reward and of each cost in (L_r - Σ λ_i L_ci) / (1 + Σ λ_i).

    >>> lagrangian_weights([0.25, 0.75])
    (0.5, -0.125, -0.375)
    """
    total = 1 + sum(multipliers)
    return 1 / total, *(-multiplier / total for multiplier in multipliers)


class AdamMultiplier(Multiplier):
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

    @override
    def update(self, cost: float) -> float:
        gradient = -(cost - self.limit)
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient * gradient
        mean, square = self._mean / (1 - 0.9**self._steps), self._square / (1 - 0.999**self._steps)
        moved = self.value - self.rate * mean / (math.sqrt(square) + 1e-8)
        self.value = min(max(moved, 0.0), self.upper)
        return self.value

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "mean": self._mean, "square": self._square, "steps": self._steps}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value, self._mean, self._square = float(state["value"]), float(state["mean"]), float(state["square"])
        self._steps = int(state["steps"])


class PIDMultiplier(Multiplier):
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

    @override
    def update(self, cost: float) -> float:
        keep, violation = self.SMOOTHING, cost - self.limit
        self._integral = max(0.0, self._integral + self.ki * violation)
        self._violation = keep * self._violation + (1 - keep) * violation
        self._cost = keep * self._cost + (1 - keep) * cost
        rise = max(0.0, self._cost - self._past[0])
        self.value = max(0.0, self.kp * self._violation + self._integral + self.kd * rise)
        self._past = [*self._past, self._cost][-self.DELAY :]
        return self.value

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "integral": self._integral,
            "violation": self._violation,
            "cost": self._cost,
            "past": list(self._past),
        }

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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

    def limits(self, constraints: int) -> tuple[float, ...]:
        """The limit of each constraint."""
        return for_each("cost_limit", self.cost_limit, constraints)

    @property
    def limit(self) -> float:
        """The limit of a single constraint."""
        return self.limits(1)[0]

    def excess(self, costs: Sequence[float]) -> float:
        """By how much the cost of recent episodes lies above the limit, with a single constraint."""
        (cost,) = costs
        return cost - self.limit


@dataclass(frozen=True)
class Lagrangian(Limited):
    """Settings of the methods whose multipliers are moved by Adam."""

    multiplier_init: float = setting(1e-3, least=0)
    """The multiplier at the start."""
    multiplier_rate: float = setting(0.035, least=0)
    """Learning rate of the multiplier."""
    multiplier_max: float | None = setting(None, least=0)
    """The multiplier's upper bound; not set, it has none."""

    def multipliers(self, constraints: int) -> Multipliers:
        """The multipliers at the start of a run."""
        start = self.multiplier_init, self.multiplier_rate, self.multiplier_max
        return Multipliers(AdamMultiplier(limit, *start) for limit in self.limits(constraints))


@dataclass(frozen=True)
class Controlled(Limited):
    """Settings of a method whose multipliers are PID controllers."""

    multiplier_init: float = setting(1e-3, least=0)
    """The multiplier and its integral at the start."""
    pid_kp: float = setting(0.1, least=0)
    """Weight of the violation's moving average."""
    pid_ki: float = setting(0.01, least=0)
    """Weight of the violation in the running sum."""
    pid_kd: float = setting(0.01, least=0)
    """Weight of the cost's recent rise."""

    def multipliers(self, constraints: int) -> Multipliers:
        """The multipliers at the start of a run."""
        start = self.multiplier_init, self.pid_kp, self.pid_ki, self.pid_kd
        return Multipliers(PIDMultiplier(limit, *start) for limit in self.limits(constraints))
