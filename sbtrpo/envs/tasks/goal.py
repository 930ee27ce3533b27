"""Goal: reach a place, then the next one."""

from __future__ import annotations

from sbtrpo.envs.arrays import Array, planar_distance
from sbtrpo.envs.tasks.navigation import Navigation, Worlds


class Goal(Navigation):
    """Reward is the way gained towards the goal, and 1 for being within its radius."""

    def potential(self, worlds: Worlds) -> Array:
        """Planar distance to the goal."""
        return planar_distance(self.xp, worlds.position, worlds.objects[:, self.slices["goal"].start])

    def reached(self, worlds: Worlds, potential: Array) -> Array:
        """Within the goal's radius."""
        return potential <= self.spec.group("goal").radius
