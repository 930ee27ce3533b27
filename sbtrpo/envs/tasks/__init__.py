"""The tasks: reward, cost and goal renewal as array functions over all worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sbtrpo.envs.physics import make_physics
from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.scene import compile_navigation, compile_velocity
from sbtrpo.envs.spec import CorridorSpec, TaskSpec, VelocitySpec
from sbtrpo.envs.tasks.base import Outcome, Task
from sbtrpo.envs.tasks.button import Button
from sbtrpo.envs.tasks.circle import Circle
from sbtrpo.envs.tasks.goal import Goal
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.tasks.push import Push
from sbtrpo.envs.tasks.run import Run
from sbtrpo.envs.tasks.toy import Corridor, NoPhysics
from sbtrpo.envs.tasks.velocity import Velocity

OBJECTIVES: dict[str, Callable[..., Navigation]] = {
    "goal": Goal,
    "button": Button,
    "push": Push,
    "circle": Circle,
    "run": Run,
}

MANY_RESTING = 5
"""Movable objects from which on sleeping pays on a GPU, where it costs by itself."""


def make_task(
    spec: TaskSpec,
    num_worlds: int,
    seed: int,
    engine: str,
    threads: int,
    original: bool,
    sleep: bool,
) -> tuple[Task, Physics]:
    """A task and the engine under it; `original` draws what the original environments draw."""
    if isinstance(spec, CorridorSpec):
        return Corridor(spec, num_worlds, seed), cast(Physics, NoPhysics(num_worlds))
    if isinstance(spec, VelocitySpec):
        model = compile_velocity(spec)
        physics = make_physics(engine, model, num_worlds, threads)
        return Velocity(spec, model, physics, seed, original), physics
    if engine != "cpu":
        sleep = sleep and sum(group.count for group in spec.groups if group.body == "free") >= MANY_RESTING
    scene = compile_navigation(spec, sleep, mocap=engine != "cpu")
    physics = make_physics(engine, scene.model, num_worlds, threads)
    return OBJECTIVES[spec.objective](spec, scene, physics, seed, original), physics


__all__ = ["Outcome", "Task", "make_task"]
