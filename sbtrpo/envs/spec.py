"""What a task is, as data: robot, objects, counts, placements, costs.

A task of the navigation family is a `NavigationSpec`: a robot, an objective and a tuple of object `Group`s.
The numbers are those of Safety-Gymnasium 1.0.0; sizes are MuJoCo half-sizes in metres.
A new level, robot or task is a new row in `registry.py`, not new code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Body = Literal["mark", "fixed", "free", "gremlin"]
"""How an object lives: `mark`: painted on the floor, touches nothing; `fixed`: immovable and solid;
`free`: solid, pushed by what touches it; `gremlin`: like `free`, but dragged along a circle by a weld."""

Objective = Literal["goal", "button", "push", "circle", "run"]
"""What a navigation task rewards."""

Rectangle = tuple[float, float, float, float]
"""x and y of the lower left corner, then of the upper right one."""


@dataclass(frozen=True)
class Group:
    """Objects of one kind.

    What `size` means depends on `shape`: sphere (radius), cylinder (radius, half height), box (half lengths).
    """

    kind: str
    count: int
    keepout: float
    """No other object's centre is placed nearer than the sum of both keepouts."""
    shape: Literal["sphere", "cylinder", "box"]
    size: tuple[float, ...]
    z: float
    body: Body
    density: float = 0.0
    cost: bool = False
    lidar: bool = True
    places: tuple[tuple[float, float], ...] | None = None
    """Fixed places instead of random ones."""
    area: Rectangle | None = None
    """Where centres are drawn, instead of in the task's square."""

    @property
    def radius(self) -> float:
        """Planar radius of a round mark."""
        return self.size[0]

    @property
    def boundary(self) -> tuple[float, ...]:
        """Where signal walls stand: ± in x, or ± in x and ± in y."""
        assert self.places is not None
        return tuple(max(place) for place in self.places[::2])


@dataclass(frozen=True)
class NavigationSpec:
    """A robot among objects on a plane: Goal, Button, Push, Circle and Run."""

    id: str
    robot: str
    objective: Objective
    groups: tuple[Group, ...]
    extent: float
    """Objects and robot start inside the square [-extent, extent]², each shrunk by its keepout."""
    robot_keepout: float = 0.4
    lidar_range: float = 3.0
    episode_length: int = 1000
    substeps: int = 10
    start: Rectangle | None = None
    """Where the robot's centre is drawn, instead of in the square."""
    observe_violation: bool = False
    """Whether the robot sees if the episode has cost anything so far: the observation's last entry, `UNVIOLATED`."""

    def slices(self) -> dict[str, slice]:
        """Index range of each kind in the object axis, in placement order."""
        start, slices = 0, {}
        for group in self.groups:
            slices[group.kind] = slice(start, start + group.count)
            start += group.count
        return slices

    def group(self, kind: str) -> Group:
        """The group of this kind."""
        return next(group for group in self.groups if group.kind == kind)

    def has(self, kind: str) -> bool:
        """Whether the task has objects of this kind."""
        return any(group.kind == kind for group in self.groups)

    @property
    def num_objects(self) -> int:
        """Number of objects of all kinds."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True)
class VelocitySpec:
    """A Gymnasium MuJoCo v4 robot that must run, but not faster than a threshold.

    reward = forward_reward * forward velocity + survival_reward - control_cost * sum of squared actions
    """

    id: str
    robot: str
    threshold: float
    """cost = 1 while the speed exceeds this (strictly)."""
    noise: float
    """Start positions and velocities are uniform in ±noise around the reference pose."""
    control_cost: float
    survival_reward: float = 0.0
    episode_length: int = 1000
    substeps: int = 4
    planar: bool = False
    """Whether the speed is that in the plane, in any direction; otherwise it is the forward velocity, with its sign."""
    forward_reward: float = 1.0
    normal_velocities: bool = False
    """Whether start velocities are normal with standard deviation `noise` instead of uniform."""


@dataclass(frozen=True)
class CorridorSpec:
    """A point mass beside a hazard strip: a task that is learnt in seconds, for tests."""

    id: str
    episode_length: int = 50


TaskSpec = NavigationSpec | VelocitySpec | CorridorSpec

_COST_NAMES = {
    "vases": ("cost_vases_contact", "cost_vases_velocity"),
    "sigwalls": ("cost_out_of_boundary",),
}
"""Components of the kinds whose name is not simply `cost_<kind>`."""


def cost_names(spec: TaskSpec) -> tuple[str, ...]:
    """The names of a task's components, in order, known from the spec alone."""
    if isinstance(spec, NavigationSpec):
        costly = [group.kind for group in spec.groups if group.cost]
        return tuple(name for kind in costly for name in _COST_NAMES.get(kind, (f"cost_{kind}",)))
    return ("cost_velocity",) if isinstance(spec, VelocitySpec) else ("cost_strip",)


def goal(radius: float = 0.3, keepout: float = 0.305) -> Group:
    """The place to reach."""
    return Group("goal", 1, keepout, "cylinder", (radius, radius / 2), radius / 2 + 0.01, "mark")


def hazards(count: int, radius: float = 0.2, keepout: float = 0.18, cost: bool = True) -> Group:
    """Discs that cost while the robot's centre is inside."""
    return Group("hazards", count, keepout, "cylinder", (radius, 0.01), 0.02, "mark", cost=cost)


def vases(count: int, cost: bool, half: float = 0.1, keepout: float = 0.15, density: float = 0.001) -> Group:
    """Light boxes; touching one costs, and so does one that moves."""
    # They start a little inside the floor, where they come to rest.
    return Group("vases", count, keepout, "box", (half, half, half), half - 4e-5, "free", density=density, cost=cost)


def pillars(count: int, cost: bool, radius: float = 0.2, keepout: float = 0.3) -> Group:
    """Immovable cylinders."""
    return Group("pillars", count, keepout, "cylinder", (radius, 0.5), 0.5, "fixed", cost=cost)


def buttons(count: int, cost: bool, radius: float = 0.1, keepout: float = 0.2) -> Group:
    """Immovable spheres, one of which is the target."""
    return Group("buttons", count, keepout, "sphere", (radius,), radius, "fixed", cost=cost)


def gremlins(count: int, cost: bool = True, half: float = 0.1, keepout: float = 0.4, density: float = 0.001) -> Group:
    """Boxes that circle around their start, dragged by a weld."""
    return Group("gremlins", count, keepout, "box", (half, half, half), half, "gremlin", density=density, cost=cost)


def push_box(half: float, density: float, keepout: float | None = None, cost: bool = False) -> Group:
    """The box to push, with a smaller box on each vertical edge (see `scene.py`)."""
    keepout = half if keepout is None else keepout
    return Group("push_box", 1, keepout, "box", (half, half, half), half, "free", density=density, cost=cost)


def circle(radius: float = 1.5) -> Group:
    """The ring to run along."""
    return Group("circle", 1, 0.0, "cylinder", (radius, 0.01), 0.01, "mark", places=((0.0, 0.0),))


def sigwalls(x: float, y: float | None = None, half_length: float = 3.5, cost: bool = True) -> Group:
    """Boundaries at ±x, or also at ±y, that cost when crossed; they are not seen by the lidar."""
    places: tuple[tuple[float, float], ...] = ((x, 0.0), (-x, 0.0))
    if y is not None:
        places += ((0.0, y), (0.0, -y))
    size = (0.05, half_length, 0.3)
    return Group("sigwalls", len(places), 0.0, "box", size, 0.25, "mark", cost=cost, lidar=False, places=places)
