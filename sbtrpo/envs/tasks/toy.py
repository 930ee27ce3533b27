"""ToyCorridor: a point mass beside a hazard strip, for tests of learning that take seconds.

A point moves by up to 0.1 in x and y a step; y is confined to [-1, 1]. The reward is the way gained in x. Where
y > 0.5 the ground is fast (the way counts double) and forbidden (it costs 1 a step). So the best return is 2 * 0.1 a
step, the best safe one 0.1 a step: 5 in an episode of 50.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
from typing_extensions import override

from sbtrpo.envs.spec import CorridorSpec
from sbtrpo.envs.streams import Floats, Ints, make_streams, uniform
from sbtrpo.envs.tasks.base import Outcome, Task

STRIDE = 0.1
STRIP = 0.5


class NoPhysics:
    """Stands where an engine is expected; the corridor needs none."""

    device = None

    def __init__(self, num_worlds: int) -> None:
        self.xp: Any = xp
        self.num_worlds = num_worlds

    def wake(self, rows: Ints) -> None:
        """Nobody sleeps."""

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to load."""


class Corridor(Task):
    """The point mass."""

    def __init__(self, spec: CorridorSpec, num_worlds: int, seed: int) -> None:
        self.spec = spec
        _, self.streams = make_streams(num_worlds, seed)
        self.position: Floats = np.zeros((num_worlds, 2))
        self.observation_size = 2
        self.observation_slices = {"position": slice(0, 2)}
        self.action_low, self.action_high = -np.ones(2), np.ones(2)
        self.cost_names: tuple[str, ...] = ("cost_strip",)

    @override
    def seed(self, seed: int) -> None:
        self.streams.seed(seed)

    @override
    def reset(self, rows: Ints) -> None:
        """Start at x = 0, anywhere in the middle of the corridor."""
        self.position[rows, 0] = 0.0
        self.position[rows, 1] = 0.6 * uniform(self.streams, rows, 1)[:, 0] - 0.3

    @override
    def step(self, action: Floats) -> tuple[Outcome, None]:
        stride = STRIDE * np.clip(action, -1, 1)
        self.position[:, 1] = np.clip(self.position[:, 1] + stride[:, 1], -1, 1)
        forbidden = self.position[:, 1] > STRIP
        gain = stride[:, 0] * (1 + forbidden)
        self.position[:, 0] += gain
        return Outcome(gain, [forbidden], forbidden ^ forbidden, None), None

    @override
    def observe(self, rows: Ints | None = None) -> Floats:
        return self.position.copy() if rows is None else self.position[rows]

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position.copy(), "streams": self.streams.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position[:] = state["position"]
        self.streams.load_state_dict(state["streams"])
