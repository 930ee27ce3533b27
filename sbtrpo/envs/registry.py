"""Task ids and their specs: the family of Safety-Gymnasium 1.0.0, row by row. Third-party tasks register here."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, TypeAlias

from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs import spec as s
from sbtrpo.envs.custom import spec_from_dict, spec_from_toml
from sbtrpo.envs.spec import CorridorSpec, NavigationSpec, TaskSpec, VelocitySpec

TaskLike: TypeAlias = str | PathLike[str] | Mapping[str, Any] | TaskSpec
"""A task id, a path that ends in .toml, the same settings as a dict, or a spec."""

PAPER_TASKS = (
    "SafetyPointGoal2-v0",
    "SafetyPointPush2-v0",
    "SafetyPointButton2-v0",
    "SafetyCarGoal2-v0",
    "SafetyCarPush2-v0",
    "SafetyCarCircle2-v0",
    "SafetyHopperVelocity-v1",
    "SafetySwimmerVelocity-v1",
)
"""The tasks of the paper; the tests have recordings of the original for them."""

_TASKS: dict[str, TaskSpec] = {}
_LATER = (("observe_violation", False),)
"""What tasks were before there were such settings: their versions leave these out, as they did then."""


def enter(spec: TaskSpec) -> None:
    """Make a task known by its id, in this package alone."""
    if spec.id in _TASKS:
        raise ValueError(f"task {spec.id!r} is already registered; choose another id")
    _TASKS[spec.id] = spec


def task_ids() -> list[str]:
    """All known task ids except the toy ones.

    >>> len(task_ids()), task_ids()[0]
    (38, 'SafetyPointGoal0-v0')
    """
    return [name for name, spec in _TASKS.items() if not isinstance(spec, CorridorSpec)]


def get_spec(task: TaskLike) -> TaskSpec:
    """The spec of a task id, also as Gymnasium names it, of a .toml file or of the same settings as a dict.

    >>> get_spec("SafetyPointGoal2-v0").robot
    'point'
    >>> get_spec({"id": "Tag-v0", "robot": "car", "objective": "goal", "objects": [{"kind": "goal"}]}).id
    'Tag-v0'
    """
    if isinstance(task, NavigationSpec | VelocitySpec | CorridorSpec):
        return task
    if isinstance(task, Mapping):
        return _unless_taken(spec_from_dict(task))
    name = fspath(task) if isinstance(task, str | PathLike) else task
    if not isinstance(name, str):
        raise TypeError(f"task must be a task id, the path of a .toml file or a dict, got {task!r}")
    name = name.removeprefix("sbtrpo:")
    if name in _TASKS:
        return _TASKS[name]
    if name.endswith(".toml"):
        return _unless_taken(spec_from_toml(name))
    if is_foreign(name):
        raise ValueError(f"{name} is no task of this package; `sbtrpo check {name}` tries an environment of your own")
    near = difflib.get_close_matches(name, _TASKS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`sbtrpo tasks` lists all of them"
    raise ValueError(f"unknown task {name!r}; {hint}")


def id_and_version(task: TaskLike) -> tuple[str, str]:
    """A task's id, and letters that tell it from other tasks of that id; none for a registered task."""
    spec = get_spec(task)
    if spec.id in _TASKS:
        return spec.id, ""
    content = {name: value for name, value in dataclasses.asdict(spec).items() if (name, value) not in _LATER}
    return spec.id, hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _unless_taken(spec: NavigationSpec) -> NavigationSpec:
    """The spec of a task from outside, unless its id is that of another task."""
    if _TASKS.get(spec.id, spec) != spec:
        raise ValueError(f"id {spec.id!r} is the name of another task; choose another id")
    return spec


def _id(robot: str, task: str, level: int) -> str:
    return f"Safety{robot.capitalize()}{task}{level}-v0"


def _goal(robot: str, level: int) -> NavigationSpec:
    objects: tuple[s.Group, ...] = (
        (),
        (s.hazards(8), s.vases(1, cost=False)),
        (s.hazards(10), s.vases(10, cost=True)),
    )[level]
    groups = (s.goal(0.3, 0.305), *objects)
    return NavigationSpec(_id(robot, "Goal", level), robot, "goal", groups, extent=(1.0, 1.5, 2.0)[level])


def _button(robot: str, level: int) -> NavigationSpec:
    # The goal's place is a phantom: the goal mark goes onto the target button.
    objects: tuple[s.Group, ...] = (
        (),
        (s.hazards(4), s.gremlins(4)),
        (s.hazards(8), s.gremlins(6)),
    )[level]
    groups = (s.buttons(4, cost=level > 0), s.goal(0.2, 0.4), *objects)
    return NavigationSpec(_id(robot, "Button", level), robot, "button", groups, extent=(1.0, 1.5, 1.8)[level])


def _push(robot: str, level: int) -> NavigationSpec:
    objects: tuple[s.Group, ...] = (
        (),
        (s.hazards(2, radius=0.3, keepout=0.4), s.pillars(1, cost=False)),
        (s.hazards(4, radius=0.3, keepout=0.4), s.pillars(4, cost=True)),
    )[level]
    # The car's box is smaller and lighter: with the Point's box it could not push.
    box = s.push_box(0.125, 0.0005) if robot == "car" else s.push_box(0.2, 0.001)
    groups = (s.goal(0.3, 0.4), *objects, box)
    return NavigationSpec(_id(robot, "Push", level), robot, "push", groups, extent=(1.0, 1.5, 2.0)[level])


def _circle(robot: str, level: int) -> NavigationSpec:
    walls: tuple[s.Group, ...] = ((), (s.sigwalls(1.125),), (s.sigwalls(1.125, 1.125),))[level]
    return NavigationSpec(
        _id(robot, "Circle", level),
        robot,
        "circle",
        (s.circle(), *walls),
        extent=0.8,
        robot_keepout=0.0,
        lidar_range=6.0,
        episode_length=500,
    )


def _run(robot: str) -> NavigationSpec:
    return NavigationSpec(
        _id(robot, "Run", 0),
        robot,
        "run",
        (s.sigwalls(0.5, half_length=17.5),),
        extent=17.5,
        robot_keepout=0.0,
        episode_length=500,
        start=(-0.2, 16.5, 0.2, 16.5),
    )


def _velocity(robot: str, thresholds: tuple[float, float], planar: tuple[bool, bool], **row: Any) -> list[VelocitySpec]:
    """Versions 0 and 1 of a velocity task, which differ in the speed that is allowed."""
    return [
        VelocitySpec(f"Safety{robot}Velocity-v{v}", robot.lower(), thresholds[v], planar=planar[v], **row)
        for v in (0, 1)
    ]


_NAVIGATION = [
    spec
    for robot in ("point", "car")
    for spec in (*(make(robot, level) for make in (_goal, _button, _push, _circle) for level in range(3)), _run(robot))
]
_SIGNED, _PLANAR = (False, False), (True, True)
_VELOCITY = [
    *_velocity("HalfCheetah", (2.8795, 3.2096), _SIGNED, substeps=5, noise=0.1, normal_velocities=True,
               control_cost=0.1),
    *_velocity("Hopper", (0.37315, 0.7402), _SIGNED, substeps=4, noise=0.005, control_cost=1e-3, survival_reward=1.0),
    *_velocity("Walker2d", (1.7075, 2.3415), _SIGNED, substeps=4, noise=0.005, control_cost=1e-3, survival_reward=1.0),
    *_velocity("Ant", (2.5745, 2.6222), _PLANAR, substeps=5, noise=0.1, normal_velocities=True,
               control_cost=0.5, survival_reward=1.0),
    *_velocity("Humanoid", (2.3475, 1.4149), _PLANAR, substeps=5, noise=0.01,
               control_cost=0.1, survival_reward=5.0, forward_reward=1.25),
    # Version 1 tests the signed forward velocity although version 0 tests the speed in the plane.
    *_velocity("Swimmer", (0.04845, 0.2282), (True, False), substeps=4, noise=0.1, control_cost=1e-4),
]  # fmt: skip

_FAMILY: list[TaskSpec] = [*_NAVIGATION, *_VELOCITY, CorridorSpec("ToyCorridor-v0")]
for _spec in _FAMILY:
    enter(_spec)
