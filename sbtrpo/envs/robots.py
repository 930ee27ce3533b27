"""The robots as parts of an `MjSpec`: bodies, joints, actuators, sensors, and how their sensors read as observation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import mujoco

from sbtrpo.envs.arrays import Array, quaternion_to_matrix

_Geom = mujoco.mjtGeom
_Joint = mujoco.mjtJoint
_Sensor = mujoco.mjtSensor


@dataclass(frozen=True)
class Robot:
    """A navigation robot.

    `build` adds it to a spec as body `agent`; `sense` turns the first `num_sensors` entries of the sensor data
    into the first entries of the observation. All objects of a scene inherit the robot's `density`, as they do in the
    original's files.
    """

    build: Callable[[mujoco.MjSpec], None]
    sense: Callable[[Any, Array], Array]
    num_sensors: int
    parts: dict[str, int]
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
        return sum(self.parts.values())


_BASE_PARTS = {"accelerometer": 3, "velocimeter": 3, "gyro": 3, "magnetometer": 3}


def _add_base_sensors(spec: mujoco.MjSpec) -> None:
    for kind in ("ACCELEROMETER", "VELOCIMETER", "GYRO", "MAGNETOMETER"):
        sensor = getattr(_Sensor, f"mjSENS_{kind}")
        spec.add_sensor(name=kind.lower(), type=sensor, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="agent")


def _add_actuator(spec: mujoco.MjSpec, name: str, **options: Any) -> Any:
    return spec.add_actuator(name=name, ctrllimited=True, ctrlrange=[-1, 1], forcelimited=True, **options)


def _build_point(spec: mujoco.MjSpec) -> None:
    body = spec.worldbody.add_body(name="agent", pos=[0, 0, POINT.z])
    body.add_site(name="agent")
    body.add_geom(name="agent", type=_Geom.mjGEOM_SPHERE, size=[0.1, 0, 0], friction=[1, 0.01, 0.01])
    body.add_geom(name="pointarrow", type=_Geom.mjGEOM_BOX, size=[0.05, 0.05, 0.05], pos=[0.1, 0, 0])
    body.add_joint(name="x", type=_Joint.mjJNT_SLIDE, axis=[1, 0, 0], damping=[0.01, 0, 0])
    body.add_joint(name="y", type=_Joint.mjJNT_SLIDE, axis=[0, 1, 0], damping=[0.01, 0, 0])
    body.add_joint(name="z", type=_Joint.mjJNT_HINGE, axis=[0, 0, 1], damping=[0.005, 0, 0])
    # In the original the sphere touches the floor at distance exactly zero, which lists a contact but no force.
    # One rounding error lower and its friction would stop the robot, so the pair is excluded.
    spec.add_exclude(bodyname1="agent", bodyname2="world")

    gear, force = [0.3, 0, 0, 0, 0, 0], [-0.05, 0.05]
    _add_actuator(spec, "x", target="agent", trntype=mujoco.mjtTrn.mjTRN_SITE, gear=gear, forcerange=force)
    turn = _add_actuator(spec, "z", target="z", trntype=mujoco.mjtTrn.mjTRN_JOINTINPARENT, gear=gear, forcerange=force)
    turn.set_to_velocity(kv=1.0)
    _add_base_sensors(spec)


def _sense_point(xp: Any, sensors: Array) -> Array:
    return sensors


def _build_car(spec: mujoco.MjSpec) -> None:
    body = spec.worldbody.add_body(name="agent", pos=[0, 0, CAR.z])
    body.add_site(name="agent")
    body.add_freejoint(name="agent")
    boxes = (
        ("agent", (0.1, 0.1, 0.05), (0, 0, 0)),
        ("back_bumper", (0.1, 0.01, 0.05), (0, 0.15, 0)),
        ("back_connector", (0.01, 0.025, 0.03), (0, 0.125, 0)),
        ("front_bumper", (0.05, 0.01, 0.05), (0, -0.165, 0)),
        ("front_connector", (0.05, 0.03, 0.01), (0, -0.13, 0.04)),
    )
    for name, size, pos in boxes:
        body.add_geom(name=name, type=_Geom.mjGEOM_BOX, size=size, pos=pos)
    for name, side in (("left", -1), ("right", 1)):
        wheel = body.add_body(name=name, pos=[0.1 * side, 0.1, -0.05])
        wheel.add_joint(name=name, type=_Joint.mjJNT_HINGE, axis=[1, 0, 0])
        ends = sorted((0.005 * side, 0.055 * side))
        axle = [ends[0], 0, 0, ends[1], 0, 0]
        wheel.add_geom(name=name, type=_Geom.mjGEOM_CYLINDER, size=[0.05, 0, 0], fromto=axle)
    rear = body.add_body(name="rear", pos=[0, -0.1, -0.05])
    rear.add_joint(name="rear", type=_Joint.mjJNT_BALL)
    rear.add_geom(name="rear", type=_Geom.mjGEOM_SPHERE, size=[0.05, 0, 0])

    for name in ("left", "right"):
        _add_actuator(
            spec, name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINTINPARENT, forcerange=[-0.02, 0.02]
        ).set_to_motor()
    _add_base_sensors(spec)
    for sensor in (_Sensor.mjSENS_BALLANGVEL, _Sensor.mjSENS_BALLQUAT):
        spec.add_sensor(name=sensor.name, type=sensor, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname="rear")


def _sense_car(xp: Any, sensors: Array) -> Array:
    rear = quaternion_to_matrix(xp, sensors[:, 15:19])
    return xp.concat([sensors[:, :15], xp.reshape(rear, (-1, 9))], axis=1)


POINT = Robot(
    build=_build_point,
    sense=_sense_point,
    num_sensors=12,
    parts=_BASE_PARTS,
    action_dim=2,
    timestep=0.002,
    density=1.0,
    z=0.1,
    on_floor=False,
    free=False,
)
CAR = Robot(
    build=_build_car,
    sense=_sense_car,
    num_sensors=19,
    parts=_BASE_PARTS | {"ballangvel_rear": 3, "ballquat_rear": 9},
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

    build: Callable[[], mujoco.MjModel]
    parts: dict[str, int]
    """Names and sizes of the observation's parts: qpos without its first entries, qvel, then fields of the engine."""
    unseen: int
    """How many first entries of qpos are not observed."""
    action_dim: int
    timestep: float
    velocity_limit: float = math.inf
    """Observed velocities are clipped to ± this."""
    position: Literal["qpos", "torso", "mass"] = "qpos"
    """Whose way counts: the first coordinates', the torso's (its body), or that of the centre of mass."""
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


def _from_gymnasium(name: str, forces: bool = False, total_mass: float | None = None) -> mujoco.MjModel:
    """A model from the file that the installed Gymnasium ships.

    Args:
        name: of the file.
        forces: whether the engine keeps `cfrc_ext`, the contact forces on each body, up to date.
        total_mass: scales all masses.
    """
    builder = mujoco.MjSpec.from_string(files("gymnasium").joinpath("envs", "mujoco", "assets", name).read_text())
    for geom in builder.geoms:
        # MuJoCo sums the margins of two geoms where 2.3.3 took the larger one, and in these files all are equal.
        geom.margin /= 2
    if forces:  # the engine computes them for the sake of a sensor that needs them
        builder.body("torso").add_site(name="torso")
        builder.add_sensor(type=_Sensor.mjSENS_ACCELEROMETER, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="torso")
    if total_mass is None:
        return builder.compile()
    builder.compiler.settotalmass = -1  # which the file sets and MuJoCo is about to drop
    model = builder.compile()
    mujoco.mj_setTotalmass(model, total_mass)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def _build_hopper() -> mujoco.MjModel:
    """Gymnasium's planar Hopper (v4)."""
    spec = mujoco.MjSpec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.timestep = 0.002
    spec.default.geom.solimp[:3] = [0.8, 0.8, 0.01]
    # MuJoCo sums the margins of two geoms where 2.3.3 took the larger one (0.001): half of it, twice.
    spec.default.geom.margin = 0.0005
    spec.default.geom.condim = 1
    floor = spec.worldbody.add_geom(name="floor", type=_Geom.mjGEOM_PLANE, size=[20, 20, 0.125])
    floor.condim = 3

    def capsule(body: Any, radius: float, ends: list[float], friction: float) -> None:
        body.add_geom(
            name=body.name,
            type=_Geom.mjGEOM_CAPSULE,
            size=[radius, 0, 0],
            fromto=ends,
            friction=[friction, 0.005, 0.0001],
        )

    def hinge(body: Any, name: str, pos: list[float], limits: tuple[float, float]) -> None:
        body.add_joint(
            name=name, type=_Joint.mjJNT_HINGE, axis=[0, -1, 0], pos=pos, damping=[1, 0, 0], armature=1,
            limited=True, range=limits,
        )  # fmt: skip
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, gear=[200, 0, 0, 0, 0, 0])
        motor.ctrllimited, motor.ctrlrange = True, [-1, 1]

    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, 1.25])
    torso.add_joint(name="rootx", type=_Joint.mjJNT_SLIDE, axis=[1, 0, 0], pos=[0, 0, -1.25])
    torso.add_joint(name="rootz", type=_Joint.mjJNT_SLIDE, axis=[0, 0, 1], pos=[0, 0, -1.25], ref=1.25)
    torso.add_joint(name="rooty", type=_Joint.mjJNT_HINGE, axis=[0, 1, 0])
    capsule(torso, 0.05, [0, 0, 0.2, 0, 0, -0.2], friction=0.9)
    thigh = torso.add_body(name="thigh", pos=[0, 0, -0.2])
    hinge(thigh, "thigh_joint", [0, 0, 0], (-150, 0))
    capsule(thigh, 0.05, [0, 0, 0, 0, 0, -0.45], friction=0.9)
    leg = thigh.add_body(name="leg", pos=[0, 0, -0.7])
    hinge(leg, "leg_joint", [0, 0, 0.25], (-150, 0))
    capsule(leg, 0.04, [0, 0, 0.25, 0, 0, -0.25], friction=0.9)
    foot = leg.add_body(name="foot", pos=[0.13, 0, -0.35])
    hinge(foot, "foot_joint", [-0.13, 0, 0.1], (-45, 45))
    capsule(foot, 0.06, [-0.26, 0, 0.1, 0.13, 0, 0.1], friction=2.0)
    return spec.compile()


def _build_swimmer() -> mujoco.MjModel:
    """Gymnasium's Swimmer (v4): three links in a viscous plane, nothing collides."""
    spec = mujoco.MjSpec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.timestep = 0.01
    spec.option.density, spec.option.viscosity = 4000, 0.1
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    spec.default.joint.armature = 0.1

    def link(body: Any, start: float, end: float) -> None:
        body.add_geom(type=_Geom.mjGEOM_CAPSULE, size=[0.1, 0, 0], fromto=[start, 0, 0, end, 0, 0], density=1000)

    def hinge(body: Any, name: str) -> None:
        body.add_joint(name=name, type=_Joint.mjJNT_HINGE, axis=[0, 0, 1], limited=True, range=[-100, 100])
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, gear=[150, 0, 0, 0, 0, 0])
        motor.ctrllimited, motor.ctrlrange = True, [-1, 1]

    torso = spec.worldbody.add_body(name="torso")
    torso.add_joint(name="slider1", type=_Joint.mjJNT_SLIDE, axis=[1, 0, 0])
    torso.add_joint(name="slider2", type=_Joint.mjJNT_SLIDE, axis=[0, 1, 0])
    torso.add_joint(name="free_body_rot", type=_Joint.mjJNT_HINGE, axis=[0, 0, 1])
    link(torso, 1.5, 0.5)
    mid = torso.add_body(name="mid", pos=[0.5, 0, 0])
    hinge(mid, "motor1_rot")
    link(mid, 0, -1)
    back = mid.add_body(name="back", pos=[-1, 0, 0])
    hinge(back, "motor2_rot")
    link(back, 0, -1)
    return spec.compile()


RUNNERS = {
    "halfcheetah": Runner(
        lambda: _from_gymnasium("half_cheetah.xml", total_mass=14),
        {"qpos": 8, "qvel": 9},
        unseen=1,
        action_dim=6,
        timestep=0.01,
    ),
    "hopper": Runner(
        _build_hopper,
        {"qpos": 5, "qvel": 6},
        unseen=1,
        action_dim=3,
        timestep=0.002,
        velocity_limit=10.0,
        healthy=((1, 0.7, math.inf), (2, -0.2, 0.2)),
        state_limit=100.0,
    ),
    "walker2d": Runner(
        lambda: _from_gymnasium("walker2d.xml"),
        {"qpos": 8, "qvel": 9},
        unseen=1,
        action_dim=6,
        timestep=0.002,
        velocity_limit=10.0,
        healthy=((1, 0.8, 2.0), (2, -1.0, 1.0)),
    ),
    "ant": Runner(
        lambda: _from_gymnasium("ant.xml"),
        {"qpos": 13, "qvel": 14},
        unseen=2,
        action_dim=8,
        timestep=0.01,
        position="torso",
        healthy=((2, 0.2, 1.0),),
        healthy_ends=True,
    ),
    "humanoid": Runner(
        lambda: _from_gymnasium("humanoid.xml", forces=True),
        {"qpos": 22, "qvel": 23, "cinert": 140, "cvel": 84, "qfrc_actuator": 23, "cfrc_ext": 84},
        unseen=2,
        action_dim=17,
        timestep=0.003,
        position="mass",
        healthy=((2, 1.0, 2.0),),
        effort_in_double=True,
    ),
    "swimmer": Runner(
        _build_swimmer,
        {"qpos": 3, "qvel": 5},
        unseen=2,
        action_dim=2,
        timestep=0.01,
    ),
}
