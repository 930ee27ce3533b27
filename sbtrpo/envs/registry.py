"""Task ids and their specs. Third-party tasks register here."""

from __future__ import annotations

import difflib

from sbtrpo.envs import spec as s
from sbtrpo.envs.spec import CorridorSpec, NavigationSpec, TaskSpec, VelocitySpec

_TASKS: dict[str, TaskSpec] = {}


def register(spec: TaskSpec) -> None:
    """Make a task known by its id."""
    if spec.id in _TASKS:
        raise ValueError(f"task {spec.id!r} is already registered; choose another id")
    _TASKS[spec.id] = spec


def task_ids() -> list[str]:
    """All known task ids, but for the toy ones.

    >>> task_ids()[0]
    'SafetyPointGoal2-v0'
    """
    return [name for name, spec in _TASKS.items() if not isinstance(spec, CorridorSpec)]


def get_spec(task: str) -> TaskSpec:
    """The spec of a task id.

    >>> get_spec("SafetyPointGoal2-v0").robot
    'point'
    """
    if task in _TASKS:
        return _TASKS[task]
    near = difflib.get_close_matches(str(task), _TASKS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(task_ids())}"
    raise ValueError(f"unknown task {task!r}; {hint}")


def _push(robot: str) -> NavigationSpec:
    # The car's box is smaller and lighter: with the Point's box it could not push.
    box = s.push_box(0.125, 0.0005) if robot == "car" else s.push_box(0.2, 0.001)
    groups = (s.goal(0.3, 0.4), s.hazards(4, radius=0.3, keepout=0.4), s.pillars(4, cost=True), box)
    return NavigationSpec(f"Safety{robot.capitalize()}Push2-v0", robot, "push", groups, extent=2.0)


def _goal(robot: str) -> NavigationSpec:
    groups = (s.goal(0.3, 0.305), s.hazards(10), s.vases(10, cost=True))
    return NavigationSpec(f"Safety{robot.capitalize()}Goal2-v0", robot, "goal", groups, extent=2.0)


def _button(robot: str) -> NavigationSpec:
    groups = (s.buttons(4, cost=True), s.goal(0.2, 0.4), s.hazards(8), s.gremlins(6))
    return NavigationSpec(f"Safety{robot.capitalize()}Button2-v0", robot, "button", groups, extent=1.8)


def _circle(robot: str) -> NavigationSpec:
    walls = ((1.125, 0.0), (-1.125, 0.0), (0.0, 1.125), (0.0, -1.125))
    return NavigationSpec(
        f"Safety{robot.capitalize()}Circle2-v0",
        robot,
        "circle",
        (s.circle(), s.sigwalls(walls)),
        extent=0.8,
        robot_keepout=0.0,
        lidar_range=6.0,
        episode_length=500,
    )


for _spec in (
    _goal("point"),
    _push("point"),
    _button("point"),
    _goal("car"),
    _push("car"),
    _circle("car"),
    VelocitySpec(
        "SafetyHopperVelocity-v1", "hopper", threshold=0.7402, noise=0.005, control_cost=1e-3, survival_reward=1.0
    ),
    VelocitySpec("SafetySwimmerVelocity-v1", "swimmer", threshold=0.2282, noise=0.1, control_cost=1e-4),
    CorridorSpec("ToyCorridor-v0"),
):
    register(_spec)
