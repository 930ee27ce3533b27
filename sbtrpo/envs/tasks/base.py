"""What the pool asks of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sbtrpo.envs.arrays import Array, Who


@dataclass
class Outcome:
    """What one step earned, in all worlds."""

    reward: Array
    """(N,)"""
    violated: list[Array]
    """For each cost component (N,) bool; the step costs 1 where any is."""
    goal_met: Array
    """(N,) bool"""
    terminated: Array | None
    """(N,) bool, or None when no episode terminated."""
    extra: dict[str, Array] = field(default_factory=dict)
    """Further per-world entries of `info`."""


class Task(Protocol):
    """Task logic over all worlds of an engine."""

    observation_size: int
    action_low: Array
    """(action_dim,)"""
    action_high: Array
    cost_names: tuple[str, ...]
    observation_slices: dict[str, slice]
    """Index range of every part of the observation."""

    def seed(self, seed: int) -> None:
        """Start the random streams anew."""

    def reset(self, who: Who) -> None:
        """Begin new episodes in these worlds."""

    def step(self, action: Array) -> tuple[Outcome, Array | None]:
        """Apply an action (N, action_dim); returns what it earned and the mask of failed worlds, if any."""

    def observe(self, who: Who | None = None) -> Array:
        """Observations of these worlds (of all when None): (n, observation_size).

        The entry `UNVIOLATED`, where there is one, is the pool's to fill.
        """

    def state_dict(self) -> dict[str, Any]:
        """The task's own memory and random streams, as nested dicts of arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
