"""Button: touch the target button, then the next one, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from sbtrpo.envs.arrays import Array, any_of
from sbtrpo.envs.streams import Ints
from sbtrpo.envs.tasks.costs import pressed_buttons
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.worlds import Worlds

DARK_STEPS = 10
"""After a press the buttons are dark for this many steps: they are not seen, and they cost nothing."""


class Button(Navigation):
    """Reward is the way gained towards the target button, and 1 for touching it."""

    @override
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """Planar distance to the target button, on which the goal stands, and whether it is touched, lit or not."""
        to_go = self.xp.sqrt(worlds.squared[:, self.slices["goal"].start])
        pressed = pressed_buttons(self.xp, worlds, self.scene.touch["buttons"])
        chosen = self.xp.arange(pressed.shape[1]) == worlds.target[:, None]
        return to_go, any_of(pressed & chosen)

    @override
    def retarget(self, rows: Ints, places: Array) -> Any:
        """Choose a button; the goal mark goes onto it. There is always one."""
        buttons, goal = self.slices["buttons"], self.slices["goal"].start
        chosen = self.streams.integers(rows, buttons.stop - buttons.start)
        self.worlds.target[rows] = self.xp.asarray(chosen)
        self.worlds.objects[rows, goal, :2] = self.worlds.objects[rows, buttons.start + chosen, :2]
        return np.ones(len(rows), bool)

    @override
    def renew(self, rows: Ints) -> Any:
        """A new target, and the buttons go dark."""
        self.worlds.timer[rows] = DARK_STEPS
        return super().renew(rows)

    @override
    def observe(self, rows: Array | None = None) -> Array:
        """As in all tasks, but dark buttons are not seen."""
        observation = super().observe(rows)
        timer = self.worlds.timer if rows is None else self.worlds.timer[rows]
        dark = self.xp.nonzero(timer > 0)[0]
        if len(dark):
            observation[dark, self.observation_slices["buttons_lidar"]] = 0.0
        return observation
