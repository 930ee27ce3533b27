"""Push: bring the box to the goal."""

from __future__ import annotations

from typing_extensions import override

from sbtrpo.envs.arrays import Array, length
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.worlds import Worlds


class Push(Navigation):
    """Reward is the way that the robot gains towards the box, the way that the box gains towards the goal, and 1 for
    the box at the goal.

    All distances are in space: a tilted box counts as farther away.
    """

    @override
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """From robot to box and from box to goal; reached when the box's centre is within the goal's radius."""
        box = worlds.objects[:, self.slices["push_box"].start]
        to_box = length(self.xp, worlds.position - box)
        to_goal = length(self.xp, worlds.objects[:, self.slices["goal"].start] - box)
        return to_box + to_goal, to_goal <= self.goal_radius
