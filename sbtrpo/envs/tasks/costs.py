"""The cost components: what counts as a violation, kind by kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from sbtrpo.envs.arrays import Array, any_of
from sbtrpo.envs.scene import Scene, TouchReading
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.envs.tasks.worlds import Worlds

VASE_SPEED_LIMIT = 1e-4
"""A vase at this speed (m/s) or above counts as moving, whoever moves it."""


@dataclass(frozen=True)
class Cost(ABC):
    """One component."""

    name: str
    """Its key in `info`."""

    @abstractmethod
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether it is violated: (N,) bool."""


@dataclass(frozen=True)
class Inside(Cost):
    """The robot's centre is inside a disc of a kind."""

    among: slice
    radius: float

    @override
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        return any_of(worlds.squared[:, self.among] < self.radius**2)


@dataclass(frozen=True)
class Touches(Cost):
    """The robot touches an object of a kind."""

    reading: TouchReading

    @override
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        return contacts(worlds, self.reading) > 0


@dataclass(frozen=True)
class TouchesWrongButton(Cost):
    """The robot touches a button that is not the target, while the buttons are lit."""

    buttons: tuple[TouchReading, ...]

    @override
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        pressed = pressed_buttons(xp, worlds, self.buttons)
        wrong = xp.arange(len(self.buttons), device=worlds.target.device) != worlds.target[:, None]
        return any_of(pressed & wrong) & (worlds.timer == 0)


@dataclass(frozen=True)
class Moves(Cost):
    """A free object of a kind moves."""

    among: slice
    """Of the free objects, in qpos order."""

    @override
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        squared = worlds.free_velocity[:, self.among] ** 2
        return any_of(squared[:, :, 0] + squared[:, :, 1] + squared[:, :, 2] >= VASE_SPEED_LIMIT**2)


@dataclass(frozen=True)
class Outside(Cost):
    """The robot's centre is beyond a boundary in x, or also in y."""

    limits: tuple[float, ...]
    """In x, or in x and y."""

    @override
    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        beyond = xp.abs(worlds.position[:, 0]) > self.limits[0]
        return beyond if len(self.limits) == 1 else beyond | (xp.abs(worlds.position[:, 1]) > self.limits[1])


def contacts(worlds: Worlds, reading: TouchReading) -> Array:
    """Number of contacts in a reading: (N,)."""
    count = worlds.sensors[:, reading.plus[0]]
    for k in reading.plus[1:]:
        count = count + worlds.sensors[:, k]
    for k in reading.minus:
        count = count - worlds.sensors[:, k]
    return count


def pressed_buttons(xp: Any, worlds: Worlds, buttons: Sequence[TouchReading]) -> Array:
    """Which buttons the robot touches: (N, buttons) bool."""
    return xp.stack([contacts(worlds, button) for button in buttons], axis=1) > 0


def cost_functions(spec: NavigationSpec, scene: Scene) -> list[Cost]:
    """The components of a task, in the order of its groups."""
    slices = spec.slices()
    components: list[Cost] = []
    for group in spec.groups:
        if not group.cost:
            continue
        if group.kind == "hazards":
            components.append(Inside("cost_hazards", slices["hazards"], group.radius))
        elif group.kind == "buttons" and spec.objective == "button":
            components.append(TouchesWrongButton("cost_buttons", tuple(scene.touch["buttons"])))
        elif group.kind == "vases":
            components.append(Touches("cost_vases_contact", scene.touch["vases"][0]))
            components.append(Moves("cost_vases_velocity", scene.free["vases"]))
        elif group.kind == "sigwalls":
            components.append(Outside("cost_out_of_boundary", group.boundary))
        else:
            components.append(Touches(f"cost_{group.kind}", scene.touch[group.kind][0]))
    return components
