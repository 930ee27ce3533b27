"""Button: touch the target button, then the next one, and no other."""

from __future__ import annotations

from sbtrpo.envs.arrays import Array, planar_distance
from sbtrpo.envs.tasks.costs import contacts
from sbtrpo.envs.tasks.navigation import Navigation, Worlds
from sbtrpo.seeding import Ints

DARK_STEPS = 10
"""For so many steps after a press the buttons are neither seen nor do they cost."""


class Button(Navigation):
    """Reward is the way gained towards the target button, and 1 for touching it."""

    def potential(self, worlds: Worlds) -> Array:
        """Planar distance to the target button, on which the goal stands."""
        return planar_distance(self.xp, worlds.position, worlds.objects[:, self.slices["goal"].start])

    def reached(self, worlds: Worlds, potential: Array) -> Array:
        """Touching the target, lit or not."""
        counts = self.xp.stack([contacts(worlds, button) for button in self.scene.touch["buttons"]], axis=1)
        chosen = self.xp.arange(counts.shape[1]) == worlds.target[:, None]
        return self.xp.any((counts > 0) & chosen, axis=1)

    def retarget(self, rows: Ints, others: Array) -> Array:
        """Choose a button; the goal mark goes onto it. There is always one."""
        buttons, goal = self.slices["buttons"], self.slices["goal"].start
        chosen = self.streams.integers(rows, buttons.stop - buttons.start)
        self.worlds.target[rows] = chosen
        self.worlds.objects[rows, goal, :2] = self.worlds.objects[rows, buttons.start + chosen, :2]
        return self.xp.ones(len(rows), dtype=self.xp.bool)

    def count_down(self) -> None:
        """The buttons' dark time runs out."""
        timer = self.worlds.timer
        timer[:] = self.xp.maximum(timer - 1, 0 * timer)

    def renew(self, rows: Ints) -> Array:
        """A new target, and the buttons go dark."""
        self.worlds.timer[rows] = DARK_STEPS
        return super().renew(rows)

    def observe(self, rows: Array | None = None) -> Array:
        """As always, with the buttons hidden while they are dark."""
        observation = super().observe(rows)
        timer = self.worlds.timer if rows is None else self.worlds.timer[rows]
        dark = self.xp.nonzero(timer > 0)[0]
        if len(dark):
            observation[dark, self.observation_slices["buttons_lidar"]] = 0.0
        return observation
