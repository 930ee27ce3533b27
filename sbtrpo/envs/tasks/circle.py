"""Circle: run along a ring, counter-clockwise, as fast as possible."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from sbtrpo.envs.arrays import Array, Who, of, put
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.worlds import Worlds


class Circle(Navigation):
    """Reward is 0.1 times the speed along the ring, over 1 plus the distance from it. There is no goal to reach."""

    @override
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """Nothing to approach or reach."""
        never = worlds.timer < 0
        return 0.0 * worlds.position[:, 0], never

    @override
    def reward(self, worlds: Worlds) -> tuple[Array, Array]:
        xp, ring = self.xp, self.spec.group("circle").radius
        x, y = worlds.position[:, 0], worlds.position[:, 1]
        # The velocimeter (sensors 3 to 5) reads the robot's velocity in its own frame.
        velocity = xp.matmul(worlds.frame, worlds.sensors[:, 3:6, None])[:, :, 0]
        radius = xp.sqrt(x * x + y * y)
        tangential = (x * velocity[:, 1] - y * velocity[:, 0]) / radius
        return 0.1 * tangential / (1 + xp.abs(radius - ring)), self.progress(worlds)[1]

    @override
    def retarget(self, who: Who, places: Array) -> Any:
        """The ring stays, and stands at the exact origin whatever was drawn for it."""
        put(self.worlds.objects[:, self.slices["circle"], :2], who, 0.0)
        return of(self.worlds.timer, who) > -1
