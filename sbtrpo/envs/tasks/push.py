"""Push: bring the box to the goal."""

from __future__ import annotations

from sbtrpo.envs.arrays import Array, distance
from sbtrpo.envs.tasks.navigation import Navigation, Worlds


class Push(Navigation):
    """Reward is the way gained towards the box, and of the box towards the goal, and 1 for the box at the goal.

    All distances are in space: a tilted box counts as farther away.
    """

    def potential(self, worlds: Worlds) -> Array:
        """From robot to box, and from box to goal."""
        box = worlds.objects[:, self.slices["push_box"].start]
        return distance(self.xp, worlds.position, box) + self._to_goal(worlds)

    def reached(self, worlds: Worlds, potential: Array) -> Array:
        """The box's centre is within the goal's radius."""
        return self._to_goal(worlds) <= self.spec.group("goal").radius

    def _to_goal(self, worlds: Worlds) -> Array:
        box, goal = self.slices["push_box"].start, self.slices["goal"].start
        return distance(self.xp, worlds.objects[:, box], worlds.objects[:, goal])
