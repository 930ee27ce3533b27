"""Goal: reach a place, then the next one."""

from __future__ import annotations

from typing_extensions import override

from sbtrpo.envs.arrays import Array
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.worlds import Worlds


class Goal(Navigation):
    """Reward is the way gained towards the goal, and 1 for being within its radius."""

    @override
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """Planar distance to the goal, and whether that is within its radius."""
        to_go = self.xp.sqrt(worlds.squared[:, self.slices["goal"].start])
        return to_go, to_go <= self.goal_radius
