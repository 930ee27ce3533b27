"""What a robot is, in numbers: its sizes, its clock, how its sensors become an observation, when it has fallen.

`bodies.py` builds them; nothing here needs the engine, so that tasks can be listed without waiting for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sbtrpo.envs.arrays import Array, quaternion_to_matrix


@dataclass(frozen=True)
class Robot:
    """A navigation robot.

    `sense` turns the first `num_sensors` entries of the sensor data into the first entries of the observation. All
    objects of a scene inherit the robot's `density`, as they do in the original's files.
    """

    sense: Callable[[Any, Array], Array]
    num_sensors: int
    observation_parts: dict[str, int]
    """Names and sizes of the observation's parts that `sense` gives."""
    action_dim: int
    timestep: float
    density: float
    z: float
    on_floor: bool
    """Whether it rolls on the floor; the Point slides on joints and must not feel the floor at all."""
    free: bool
    """Whether its pose is a free joint (qpos is the world pose) or joints relative to the body's start pose."""

    @property
    def sense_dim(self) -> int:
        """Entries of the observation that `sense` gives."""
        return sum(self.observation_parts.values())


_BASE_PARTS = {"accelerometer": 3, "velocimeter": 3, "gyro": 3, "magnetometer": 3}


def _sense_point(xp: Any, sensors: Array) -> Array:
    return sensors


def _sense_car(xp: Any, sensors: Array) -> Array:
    rear = quaternion_to_matrix(xp, sensors[:, 15:19])
    return xp.concat([sensors[:, :15], xp.reshape(rear, (-1, 9))], axis=1)


POINT = Robot(
    sense=_sense_point,
    num_sensors=12,
    observation_parts=_BASE_PARTS,
    action_dim=2,
    timestep=0.002,
    density=1.0,
    z=0.1,
    on_floor=False,
    free=False,
)
CAR = Robot(
    sense=_sense_car,
    num_sensors=19,
    observation_parts=_BASE_PARTS | {"ballangvel_rear": 3, "ballquat_rear": 9},
    action_dim=2,
    timestep=0.004,
    density=5.0,
    z=0.1,
    on_floor=True,
    free=True,
)
ROBOTS = {"point": POINT, "car": CAR}


@dataclass(frozen=True)
class Runner:
    """A robot of the velocity tasks: Gymnasium's MuJoCo robots, v4."""

    observation_parts: dict[str, int]
    """Names and sizes of the observation's parts: qpos without its first entries, qvel, then fields of the engine."""
    unseen: int
    """How many first entries of qpos are not observed."""
    action_dim: int
    timestep: float
    velocity_limit: float = math.inf
    """Observed velocities are clipped to ± this."""
    position: Literal["qpos", "torso", "mass"] = "qpos"
    """Whose velocity counts: that of the first entries of qpos, of the body `torso`, or of the centre of mass."""
    healthy: tuple[tuple[int, float, float], ...] = ()
    """(i, low, high): the episode ends unless low < qpos[i] < high, for each of these."""
    healthy_ends: bool = False
    """Whether low and high themselves are healthy."""
    state_limit: float = math.inf
    """The episode also ends unless all of qpos and qvel but the first two are within ± this."""
    effort_in_double: bool = False
    """Whether squared actions are summed in double precision, or in the action's own."""

    @property
    def quaternion(self) -> slice | None:
        """Where the root's orientation is in qpos, if it has one."""
        return None if self.position == "qpos" else slice(3, 7)


RUNNERS = {
    "halfcheetah": Runner(
        {"qpos": 8, "qvel": 9},
        unseen=1,
        action_dim=6,
        timestep=0.01,
    ),
    "hopper": Runner(
        {"qpos": 5, "qvel": 6},
        unseen=1,
        action_dim=3,
        timestep=0.002,
        velocity_limit=10.0,
        healthy=((1, 0.7, math.inf), (2, -0.2, 0.2)),
        state_limit=100.0,
    ),
    "walker2d": Runner(
        {"qpos": 8, "qvel": 9},
        unseen=1,
        action_dim=6,
        timestep=0.002,
        velocity_limit=10.0,
        healthy=((1, 0.8, 2.0), (2, -1.0, 1.0)),
    ),
    "ant": Runner(
        {"qpos": 13, "qvel": 14},
        unseen=2,
        action_dim=8,
        timestep=0.01,
        position="torso",
        healthy=((2, 0.2, 1.0),),
        healthy_ends=True,
    ),
    "humanoid": Runner(
        {"qpos": 22, "qvel": 23, "cinert": 140, "cvel": 84, "qfrc_actuator": 23, "cfrc_ext": 84},
        unseen=2,
        action_dim=17,
        timestep=0.003,
        position="mass",
        healthy=((2, 1.0, 2.0),),
        effort_in_double=True,
    ),
    "swimmer": Runner(
        {"qpos": 3, "qvel": 5},
        unseen=2,
        action_dim=2,
        timestep=0.01,
    ),
}
