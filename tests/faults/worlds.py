"""A walk that now and then raises, hangs or ends its process; registered on import."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8
TROUBLES = {"raises": 6, "exits": 12, "hangs": 24}
"""What may go wrong, and in one of how many episodes it does."""


class Walk(gymnasium.Env[Any, Any]):
    """A random walk that is pushed; it costs 1 above 1. An episode's seed decides whether something goes wrong."""

    def __init__(self, trouble: str) -> None:
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.trouble, self.troubled = trouble, False
        self.x, self.t = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1), 0
        self.troubled = seed is not None and seed % TROUBLES[self.trouble] == 0
        return np.array([self.x, self.t], np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.x += 0.1 * float(action[0]) + self.np_random.normal(0, 0.1)
        if self.troubled and self.t == 3:
            self._suffer()
        return np.array([self.x, self.t], np.float32), self.x, False, False, {"cost": float(self.x > 1)}

    def _suffer(self) -> None:
        if self.trouble == "raises":
            raise ZeroDivisionError("as promised")
        if self.trouble == "exits":
            os._exit(3)
        time.sleep(600)


for _trouble in TROUBLES:
    _name = f"{_trouble.title()}-v0"
    if _name not in gymnasium.registry:
        gymnasium.register(_name, f"{__name__}:Walk", max_episode_steps=LENGTH, kwargs={"trouble": _trouble})
