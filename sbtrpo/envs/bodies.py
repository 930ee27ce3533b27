"""The robots as parts of an `MjSpec`: bodies, joints, actuators, sensors."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import mujoco

from sbtrpo.envs.robots import CAR, POINT

_Geom = mujoco.mjtGeom
_Joint = mujoco.mjtJoint
_Sensor = mujoco.mjtSensor


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


ROBOT_BODIES: dict[str, Callable[[mujoco.MjSpec], None]] = {"point": _build_point, "car": _build_car}
"""What adds a navigation robot to a spec, as body `agent`."""


def _from_gymnasium(name: str, forces: bool = False, total_mass: float | None = None) -> mujoco.MjModel:
    """A model from the file that the installed Gymnasium ships.

    Args:
        name: of the file.
        forces: whether the engine keeps `cfrc_ext`, the contact forces on each body, up to date.
        total_mass: scales all masses.
    """
    file = files("gymnasium").joinpath("envs", "mujoco", "assets", name)
    builder = mujoco.MjSpec.from_string(file.read_text("utf-8"))
    for geom in builder.geoms:
        # MuJoCo sums the margins of two geoms where 2.3.3 took the larger one, and in these files all are equal.
        geom.margin /= 2
    if forces:  # the engine computes them only if a sensor needs them
        builder.body("torso").add_site(name="torso")
        builder.add_sensor(type=_Sensor.mjSENS_ACCELEROMETER, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="torso")
    if total_mass is None:
        return builder.compile()
    builder.compiler.settotalmass = -1  # the file sets it, and MuJoCo will remove this option
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


RUNNER_MODELS: dict[str, Callable[[], mujoco.MjModel]] = {
    "halfcheetah": lambda: _from_gymnasium("half_cheetah.xml", total_mass=14),
    "hopper": _build_hopper,
    "walker2d": lambda: _from_gymnasium("walker2d.xml"),
    "ant": lambda: _from_gymnasium("ant.xml"),
    "humanoid": lambda: _from_gymnasium("humanoid.xml", forces=True),
    "swimmer": _build_swimmer,
}
"""What compiles the model of a velocity task's robot."""
