"""Run: as far as possible towards -y, between two walls."""

from __future__ import annotations

import math
from typing import Any

from typing_extensions import override

from sbtrpo.envs.arrays import Array, Who, of
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.worlds import Worlds

FAR_GOAL = -1000.0
"""The place to run to is (0, this), which no episode is long enough to reach."""
SCALE = 60.0


class Run(Navigation):
    """Reward is sixty times the way gained towards a far place."""

    reward_limit = math.inf

    @override
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """Planar distance to the far place, which is never reached. So far away single precision sees no step."""
        x, y = self.xp.astype(worlds.position, self.xp.float64)[:, :2].T
        y = y - FAR_GOAL
        return self.xp.sqrt(x * x + y * y), worlds.timer < 0

    @override
    def reward(self, worlds: Worlds) -> tuple[Array, Array]:
        to_go, never = self.progress(worlds)
        gained = worlds.to_go - to_go
        worlds.to_go[:] = to_go
        return SCALE * gained, never

    @override
    def retarget(self, who: Who, places: Array) -> Any:
        """There is nothing to choose."""
        return of(self.worlds.timer, who) > -1
