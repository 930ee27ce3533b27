"""Button: touch the target button, then the next one, and no other."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from sbtrpo.envs.arrays import Array, Who, any_of, any_true, of, put, which
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
        chosen = self.xp.arange(pressed.shape[1], device=self._like["device"]) == worlds.target[:, None]
        return to_go, any_of(pressed & chosen)

    @override
    def retarget(self, who: Who, places: Array) -> Any:
        """Choose a button; the goal mark goes onto it. There is always one."""
        xp, buttons, goal = self.xp, self.slices["buttons"], self.slices["goal"].start
        chosen = xp.asarray(self.streams.integers(who, buttons.stop - buttons.start), device=self._like["device"])
        put(self.worlds.target, who, chosen)
        each = xp.arange(len(chosen), device=self._like["device"])
        put(self.worlds.objects[:, goal, :2], who, of(self.worlds.objects, who)[each, buttons.start + chosen, :2])
        return chosen >= 0

    @override
    def renew(self, who: Who) -> Any:
        """A new target, and the buttons go dark."""
        put(self.worlds.timer, who, DARK_STEPS)
        return super().renew(who)

    @override
    def observe(self, who: Who | None = None) -> Array:
        """As in all tasks, but dark buttons are not seen."""
        observation = super().observe(who)
        dark = (self.worlds.timer if who is None else of(self.worlds.timer, who)) > 0
        if any_true(dark):
            put(observation[:, self.observation_slices["buttons_lidar"]], which(dark), 0.0)
        return observation
