"""Tasks in words and tables, from their specs alone: nothing is compiled, so listing all of them is fast.

python -m sbtrpo.envs.describe docs/tasks.md            write the table of the family into the page
python -m sbtrpo.envs.describe docs/tasks.md --check    only say whether it is current
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbtrpo.envs.lidar import BINS
from sbtrpo.envs.observation import UNVIOLATED, action_size, observation_size, observation_slices
from sbtrpo.envs.registry import TaskLike, get_spec, task_ids
from sbtrpo.envs.robots import ROBOTS, RUNNERS
from sbtrpo.envs.spec import CorridorSpec, Group, NavigationSpec, TaskSpec, VelocitySpec, cost_names

ROBOT_FACTS = {
    "point": "Point, a sphere that slides and turns; the actions, within ±1, are throttle (full from ±0.05 on) and"
    " turn",
    "car": "Car, two driven wheels and a ball, whose front is -y of its body; the actions, within ±1, are the torques"
    " of the left and the right wheel (full from ±0.02 on)",
    "halfcheetah": "HalfCheetah, a planar runner with two legs; the actions are 6 joint torques within ±1",
    "hopper": "Hopper, a planar leg; the actions are 3 joint torques within ±1",
    "walker2d": "Walker2d, planar, with two legs; the actions are 6 joint torques within ±1",
    "ant": "Ant, a torso with four legs; the actions are 8 joint torques within ±1",
    "humanoid": "Humanoid, 13 bodies; the actions are 17 joint torques within ±0.4",
    "swimmer": "Swimmer, three links in a viscous plane; the actions are 2 joint torques within ±1",
}
REWARDS = {
    "goal": "the way gained towards the goal, and 1 for each goal reached, which then moves",
    "button": "the way gained towards the target button, and 1 for touching it, after which another is the target",
    "push": "the way gained towards the box and by the box towards the goal, in space, and 1 for each goal reached",
    "circle": "0.1 times the speed counter-clockwise around the origin, over 1 plus the distance from the ring",
    "run": "60 times the way gained towards (0, -1000)",
}
COSTS = {
    "cost_hazards": "the robot's centre is inside a hazard",
    "cost_vases_contact": "the robot touches a vase",
    "cost_vases_velocity": "a vase moves at 1e-4 m/s or more",
    "cost_pillars": "the robot touches a pillar",
    "cost_gremlins": "the robot touches a gremlin",
    "cost_push_box": "the robot touches the box",
    "cost_out_of_boundary": "the robot's centre is beyond a signal wall",
    "cost_strip": "the point is in the forbidden strip",
}
OBSERVATION_FACTS = {
    "accelerometer": "acceleration, in the robot's frame, gravity included",
    "velocimeter": "velocity, in the robot's frame",
    "gyro": "angular velocity, in the robot's frame",
    "magnetometer": "direction of -y, times 0.5, in the robot's frame",
    "ballangvel_rear": "angular velocity of the rear ball",
    "ballquat_rear": "orientation of the rear ball, a matrix row by row",
    "qpos": "positions",
    "qvel": "velocities",
    "cinert": "inertias of the bodies about the centre of mass",
    "cvel": "velocities of the bodies about the centre of mass",
    "qfrc_actuator": "forces of the actuators on the joints",
    "cfrc_ext": "contact forces and torques on the bodies",
    "position": "x and y",
    UNVIOLATED: "1 while nothing in the episode has cost anything, 0 from the first step that costs on",
}


@dataclass(frozen=True)
class Sheet:
    """A table of text."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """As GitHub shows it."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(re.sub(r"([|*])", r"\\\1", cell) for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class Description:
    """One task in full."""

    id: str
    facts: tuple[tuple[str, str], ...]
    """(what, sentence): robot, reward, episode, start."""
    observation: Sheet
    objects: Sheet
    costs: Sheet


def rows(tasks: Sequence[TaskLike] | None = None) -> list[tuple[str, int, int, int, str]]:
    """Of each task: id, sizes of observation and action, steps of an episode, and objects with a star at what costs.

    >>> rows(["SafetyPointGoal1-v0"])
    [('SafetyPointGoal1-v0', 60, 2, 1000, 'goal, 8 hazards*, vase')]
    """
    specs = [get_spec(task) for task in (task_ids() if tasks is None else tasks)]
    return [(spec.id, observation_size(spec), action_size(spec), spec.episode_length, objects(spec)) for spec in specs]


def sheet(tasks: Sequence[TaskLike] | None = None) -> Sheet:
    """`rows` as a table of text."""
    texts = [(name, *map(str, numbers), listed) for name, *numbers, listed in rows(tasks)]
    return Sheet(("task", "obs", "act", "steps", "objects (* costs)"), texts)


def objects(spec: TaskSpec) -> str:
    """What stands in a task's worlds, with a star at what costs."""
    if isinstance(spec, CorridorSpec):
        return "a strip*"
    if isinstance(spec, VelocitySpec):
        return f"none; {_too_fast(spec)}*"
    return ", ".join(_counted(group) + ("*" if group.cost else "") for group in spec.groups) or "none"


def _counted(group: Group) -> str:
    name = group.kind.replace("_", " ")
    return f"{group.count} {name}" if group.count > 1 else name.removesuffix("s")


def _too_fast(spec: VelocitySpec) -> str:
    return f"running faster than {spec.threshold:g} m/s{' in any direction' if spec.planar else ''}"


def describe(task: TaskLike) -> Description:
    """A task in full.

    >>> describe("SafetyCarGoal1-v0").observation.rows[-1]
    ('vases_lidar', '[56:72)', '16', 'nearness of vases in 16 directions, from 0 at 3 m to 1')
    """
    spec = get_spec(task)
    slices = observation_slices(spec).items()
    observation = [
        (name, f"[{p.start}:{p.stop})", str(p.stop - p.start), _observation_fact(spec, name)) for name, p in slices
    ]
    return Description(
        id=spec.id,
        facts=tuple(_facts(spec)),
        observation=Sheet(("part", "range", "size", "what"), observation),
        objects=_objects_sheet(spec.groups if isinstance(spec, NavigationSpec) else ()),
        costs=Sheet(("component", "1 in a step in which"), [(name, _cost(spec, name)) for name in cost_names(spec)]),
    )


def _observation_fact(spec: TaskSpec, name: str) -> str:
    if isinstance(spec, NavigationSpec) and name.endswith("_lidar"):
        kind = name.removesuffix("_lidar")
        dark = "; all 0 for ten steps after a press" if kind == "buttons" and spec.objective == "button" else ""
        noun = kind if kind.endswith("s") else f"the {kind.replace('_', ' ')}"
        return f"nearness of {noun} in {BINS} directions, from 0 at {spec.lidar_range:g} m to 1{dark}"
    if isinstance(spec, VelocitySpec) and name in ("qpos", "qvel"):
        robot = RUNNERS[spec.robot]
        if name == "qvel":
            limit = robot.velocity_limit
            return f"velocities, clipped to ±{limit:g}" if math.isfinite(limit) else "velocities"
        unseen = "x" if robot.unseen == 1 else "x and y"
        return f"positions, without {unseen}: qpos[{robot.unseen}:]"
    return OBSERVATION_FACTS[name]


def _cost(spec: TaskSpec, name: str) -> str:
    if name == "cost_buttons":
        wrong = "a button that is not the target, unless they are dark"
        return f"the robot touches {wrong if getattr(spec, 'objective', '') == 'button' else 'a button'}"
    return f"it is {_too_fast(spec)}" if isinstance(spec, VelocitySpec) else COSTS[name]


def _facts(spec: TaskSpec) -> list[tuple[str, str]]:
    if isinstance(spec, CorridorSpec):
        return [("robot", "a point mass"), ("episode", f"{spec.episode_length} steps")]
    if isinstance(spec, VelocitySpec):
        reward = "forward velocity" if spec.forward_reward == 1 else f"{spec.forward_reward:g} times forward velocity"
        reward += f" + {spec.survival_reward:g}" if spec.survival_reward else ""
        reward += f" - {spec.control_cost:g} times the sum of squared actions"
        spread = f"the reference pose with uniform noise of ±{spec.noise:g} in positions and"
        spread += f" {'normal' if spec.normal_velocities else 'uniform'} noise of the same size in velocities"
        end = f"{_steps(spec, RUNNERS[spec.robot].timestep)}{_fall(spec)}"
        return [("robot", ROBOT_FACTS[spec.robot]), ("reward", reward), ("episode", end), ("start", spread)]
    start = f"anywhere in the square of half side {spec.extent:g} m"
    if spec.start is not None:
        start = "x in [{0:g}, {2:g}], y in [{1:g}, {3:g}]".format(*spec.start)
    start += f", any heading, {spec.robot_keepout:g} m and their own keepout away from other things"
    return [
        ("robot", ROBOT_FACTS.get(spec.robot, spec.robot)),
        ("reward", REWARDS[spec.objective]),
        ("episode", _steps(spec, ROBOTS[spec.robot].timestep)),
        ("start", start),
    ]


def _steps(spec: NavigationSpec | VelocitySpec, timestep: float) -> str:
    return f"{spec.episode_length} steps of {spec.substeps * timestep:g} s"


def _fall(spec: VelocitySpec) -> str:
    robot = RUNNERS[spec.robot]
    left, right = "[]" if robot.healthy_ends else "()"
    ranges = [f"qpos[{i}] leaves {left}{low:g}, {high:g}{right}" for i, low, high in robot.healthy]
    if math.isfinite(robot.state_limit):
        ranges.append(f"another entry of the state leaves (-{robot.state_limit:g}, {robot.state_limit:g})")
    return f", or until {' or '.join(ranges)}" if ranges else ""


def _objects_sheet(groups: Sequence[Group]) -> Sheet:
    columns = ("kind", "count", "shape", "size, m", "keepout, m", "body", "costs", "places")
    return Sheet(columns, [
        (
            group.kind,
            str(group.count),
            group.shape,
            " x ".join(f"{size:g}" for size in group.size),
            f"{group.keepout:g}",
            group.body,
            "yes" if group.cost else "no",
            _where(group),
        )
        for group in groups
    ])  # fmt: skip


def _where(group: Group) -> str:
    if group.places is not None:
        return " ".join(f"({x:g}, {y:g})" for x, y in group.places)
    return "random" if group.area is None else "random in [{:g}, {:g}, {:g}, {:g}]".format(*group.area)


_GENERATED = re.compile(r"(<!-- generated: tasks -->\n).*?(<!-- end -->)", re.DOTALL)


def main(args: Sequence[str] | None = None) -> int:
    """Write the table of the family into a page, between its marks; returns the exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the page is not current")
    options = parser.parse_args(args)
    text = options.page.read_text(encoding="utf-8")
    current = _GENERATED.sub(lambda marks: f"{marks[1]}{sheet().markdown()}\n{marks[2]}", text)
    if options.check:
        if current != text:
            print(f"{options.page} is not current: run python -m sbtrpo.envs.describe {options.page}", file=sys.stderr)
        return int(current != text)
    options.page.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
