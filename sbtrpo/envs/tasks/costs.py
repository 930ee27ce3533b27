"""The cost components: what counts as a violation, kind by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbtrpo.envs.arrays import Array
from sbtrpo.envs.scene import Scene, TouchReading
from sbtrpo.envs.spec import NavigationSpec

if TYPE_CHECKING:
    from sbtrpo.envs.tasks.navigation import Worlds

VASE_SPEED_LIMIT = 1e-4
"""A vase at this speed (m/s) or above counts as moving, whoever moves it."""


@dataclass(frozen=True)
class Cost:
    """One component: `Cost(...)(xp, worlds)` is (N,) bool, whether it is violated."""

    name: str

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether the component is violated."""
        raise NotImplementedError


@dataclass(frozen=True)
class Inside(Cost):
    """The robot's centre is inside one of some discs."""

    among: slice
    radius: float

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether the robot is in a disc."""
        gap = worlds.objects[:, self.among, :2] - worlds.position[:, None, :2]
        return xp.any(xp.sum(gap * gap, axis=2) < self.radius**2, axis=1)


@dataclass(frozen=True)
class Touches(Cost):
    """The robot touches an object of a kind."""

    reading: TouchReading

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether there is a contact."""
        return contacts(worlds, self.reading) > 0


@dataclass(frozen=True)
class TouchesWrongButton(Cost):
    """The robot touches a button that is not the target, while the buttons are lit."""

    buttons: tuple[TouchReading, ...]

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether a wrong button is pressed."""
        pressed = xp.stack([contacts(worlds, button) > 0 for button in self.buttons], axis=1)
        wrong = xp.arange(len(self.buttons)) != worlds.target[:, None]
        return xp.any(pressed & wrong, axis=1) & (worlds.timer == 0)


@dataclass(frozen=True)
class Moves(Cost):
    """A free object moves."""

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether one is fast enough to count."""
        squared = xp.sum(worlds.free_velocity * worlds.free_velocity, axis=2)
        return xp.any(squared >= VASE_SPEED_LIMIT**2, axis=1)


@dataclass(frozen=True)
class Outside(Cost):
    """The robot's centre is beyond a boundary in x, or also in y."""

    limit: float
    axes: int

    def __call__(self, xp: Any, worlds: Worlds) -> Array:
        """Whether the robot is out of bounds."""
        return xp.any(xp.abs(worlds.position[:, : self.axes]) > self.limit, axis=1)


def contacts(worlds: Worlds, reading: TouchReading) -> Array:
    """Number of contacts in a reading: (N,)."""
    count = sum(worlds.sensors[:, k] for k in reading.plus)
    return count - sum(worlds.sensors[:, k] for k in reading.minus) if reading.minus else count


def cost_functions(spec: NavigationSpec, scene: Scene) -> list[Cost]:
    """The components of a task, in the order of its groups."""
    slices, found = spec.slices(), []
    for group in spec.groups:
        if not group.cost:
            continue
        if group.kind == "hazards":
            found.append(Inside("cost_hazards", slices["hazards"], group.radius))
        elif group.kind == "buttons":
            found.append(TouchesWrongButton("cost_buttons", tuple(scene.touch["buttons"])))
        elif group.kind == "vases":
            found.append(Touches("cost_vases_contact", scene.touch["vases"][0]))
            found.append(Moves("cost_vases_velocity"))
        elif group.kind == "sigwalls":
            assert group.places is not None
            found.append(Outside("cost_out_of_boundary", abs(group.places[0][0]), 1 if group.count == 2 else 2))
        else:
            found.append(Touches(f"cost_{group.kind}", scene.touch[group.kind][0]))
    return found
