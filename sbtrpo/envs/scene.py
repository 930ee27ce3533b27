"""From a task spec to one compiled `MjModel`, and where its parts lie in the state.

Only what the physics feels is in the model: the floor, the robot, solid objects and the gremlins' welds. Goals,
hazards, circles and boundaries touch nothing; they are plain numbers of the task, and bodies for them would only
slow the engine. The model is compiled once: a new episode writes positions into it and never recompiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import mujoco

from sbtrpo.envs.bodies import ROBOT_BODIES, RUNNER_MODELS
from sbtrpo.envs.robots import ROBOTS, Robot
from sbtrpo.envs.spec import Group, NavigationSpec, VelocitySpec

SLEEP_TOLERANCE = 5e-5
"""A body slower than this (m/s) for ten substeps sleeps. A vase costs from 1e-4 m/s on, twice this speed."""

MARGIN = 0.002
"""Where colliders work in single precision, pillars are so much smaller and felt from as far away. The surface is the
same, but what touches it lightly is still apart from the geom: such colliders measure distances well, and lose one
contact in six of surfaces that just meet. (Contact points lie half of this off.)"""
_GEOMS = {
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "box": mujoco.mjtGeom.mjGEOM_BOX,
}
# In MuJoCo 2.3.3 a weld was stiffer in rotation, by the ratio of translational to rotational inertia: 150 for a gremlin
# of half side 0.1. The torque scale takes the square root of that.
_GREMLIN_TORQUE_SCALE = math.sqrt(150.0)


Readings = dict[str, list[tuple[list[str], list[str]]]]
"""For each kind its readings, each as (sensors to add, sensors to subtract)."""


@dataclass(frozen=True)
class TouchReading:
    """Contacts of the robot with a set of objects: the sum of some sensor columns minus the sum of others."""

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()


@dataclass
class Scene:
    """A compiled navigation scene and the addresses in it."""

    model: mujoco.MjModel
    robot: Robot
    agent: int
    """Body id of the robot."""
    fixed: dict[str, slice] = field(default_factory=dict)
    """Body ids of the solid, immovable objects of each kind."""
    free: dict[str, slice] = field(default_factory=dict)
    """Index range of each kind with a free joint among all free objects, in qpos order."""
    free_qpos: int = 0
    """Address of the first free object's position; the others follow, 7 apart."""
    free_qvel: int = 0
    touch: dict[str, list[TouchReading]] = field(default_factory=dict)
    """How to read the robot's contacts: one reading for each button, one for all objects of another kind."""
    welds: slice | None = None
    """Equality ids of the gremlins' welds."""


def compile_velocity(spec: VelocitySpec) -> mujoco.MjModel:
    """The model of a velocity task."""
    return RUNNER_MODELS[spec.robot]()


def compile_navigation(spec: NavigationSpec, sleep: bool = True, mocap: bool = False) -> Scene:
    """The model of a navigation task.

    Args:
        spec: the task.
        sleep: whether resting bodies leave the solver until something touches them.
        mocap: whether immovable objects are mocap bodies, for an engine in which others stand alike in all worlds.
    """
    robot = ROBOTS[spec.robot]
    builder = _empty(robot, sleep)
    builder.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[3.5, 3.5, 0.1])
    ROBOT_BODIES[spec.robot](builder)
    for group in _solid(spec):
        _add_objects(builder, group, mocap)
    readings = _add_touch_sensors(builder, spec, robot)
    model = builder.compile()
    return _locate(Scene(model, robot, model.body("agent").id), spec, readings)


def _empty(robot: Robot, sleep: bool) -> mujoco.MjSpec:
    builder = mujoco.MjSpec()
    option = builder.option
    option.timestep = robot.timestep
    # An implicit integrator would calm the Point's chattering yaw servo and so make another task.
    option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # The colliders of MuJoCo 2.3.3: the native one finds other contact points at pillars.
    option.disableflags |= mujoco.mjtDisableBit.mjDSBL_NATIVECCD | mujoco.mjtDisableBit.mjDSBL_MULTICCD
    option.ccd_tolerance = 1e-7  # 2.3.3 had 1e-6 and still found a graze of 3e-7 m that today's code misses there
    if sleep:
        option.enableflags |= mujoco.mjtEnableBit.mjENBL_SLEEP
        option.sleep_tolerance = SLEEP_TOLERANCE
    builder.default.geom.condim = 6
    builder.default.geom.density = robot.density
    builder.default.joint.damping = [0.001, 0, 0]
    return builder


def _solid(spec: NavigationSpec) -> list[Group]:
    """The groups that the physics feels, in the original's order of bodies, which is that of qpos."""
    return [group for body in ("free", "gremlin", "fixed") for group in spec.groups if group.body == body]


def object_name(group: Group, i: int) -> str:
    """Name of an object's body."""
    return group.kind if group.count == 1 else f"{group.kind}{i}"


def _add_objects(builder: mujoco.MjSpec, group: Group, mocap: bool) -> None:
    if group.body == "gremlin":
        # All gremlins follow one and the same motion, so one mocap body drags them all.
        builder.worldbody.add_body(name="dragger", mocap=True)
    for i in range(group.count):
        name = object_name(group, i)
        # Far apart, so that nothing touches in the compiled pose; episodes write the real places.
        body = builder.worldbody.add_body(name=name, pos=[3.0 * (i + 1), 30.0, group.z])
        if group.body != "fixed":
            body.add_freejoint(name=name)
        elif mocap:
            body.mocap = True
        geom = body.add_geom(name=name, type=_GEOMS[group.shape], density=group.density or 1.0)
        geom.margin = MARGIN if mocap and group.body == "fixed" and group.shape == "cylinder" else 0.0
        geom.size = [*(length - geom.margin for length in group.size), 0, 0][:3]
        if group.kind == "push_box":
            _add_push_box_edges(body, group)
        if group.body == "gremlin":
            weld = builder.add_equality(
                name=name,
                type=mujoco.mjtEq.mjEQ_WELD,
                objtype=mujoco.mjtObj.mjOBJ_BODY,
                name1="dragger",
                name2=name,
                solref=[0.02, 1.5],
            )
            weld.data[:11] = [0, 0, 0, *body.pos, 1, 0, 0, 0, _GREMLIN_TORQUE_SCALE * (0.1 / group.size[0])]


def _add_push_box_edges(body: Any, group: Group) -> None:
    half = group.size[0]
    for k, (sx, sy) in enumerate(((1, 1), (-1, 1), (1, -1), (-1, -1))):
        body.add_geom(
            name=f"edge{k}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[half / 2, half / 2, half],
            pos=[sx * half, sy * half, 0],
            density=group.density,
        )


def _add_touch_sensors(builder: mujoco.MjSpec, spec: NavigationSpec, robot: Robot) -> Readings:
    """Contact sensors for the kinds whose touch matters.

    Every sensor takes time. A kind can be read without a sensor for each of its objects: it has all contacts of the
    robot minus those with the floor and with other objects. The most numerous kind is read so if that saves sensors.
    """
    solid = _solid(spec)
    # Buttons are told apart where one of them is the target; of other kinds only "any" is asked.
    apart = "buttons" if spec.objective == "button" else None
    wanted = [group for group in solid if group.cost or group.kind == apart]
    if not wanted:
        return {}
    rest = max((group for group in wanted if group.kind != apart), key=lambda g: g.count, default=None)
    sensed = [g for g in solid if g is not rest]
    if rest is not None and 1 + robot.on_floor + sum(g.count for g in sensed) >= sum(g.count for g in wanted):
        rest, sensed = None, wanted

    def add(name: str, **partner: Any) -> str:
        # intprm: report "found" only, unsorted, one slot; its value is the number of contacts.
        builder.add_sensor(
            name=name,
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            objtype=mujoco.mjtObj.mjOBJ_XBODY,
            objname="agent",
            intprm=[1 << mujoco.mjtConDataField.mjCONDATA_FOUND.value, 0, 1],
            **partner,
        )
        return name

    def add_body(name: str) -> str:
        return add(f"touch_{name}", reftype=mujoco.mjtObj.mjOBJ_BODY, refname=name)

    readings: Readings = {}
    names: list[str] = []
    for group in sensed:
        touched = [add_body(object_name(group, i)) for i in range(group.count)]
        names += touched
        readings[group.kind] = [([name], []) for name in touched] if group.kind == apart else [(touched, [])]
    if rest is not None:
        if robot.on_floor:
            names.append(add_body("world"))
        readings[rest.kind] = [([add("touch_any")], names)]
    return readings


def _locate(scene: Scene, spec: NavigationSpec, readings: Readings) -> Scene:
    model, num_free = scene.model, 0

    def columns(names: list[str]) -> tuple[int, ...]:
        return tuple(int(model.sensor(name).adr[0]) for name in names)

    for kind, sums in readings.items():
        scene.touch[kind] = [TouchReading(columns(plus), columns(minus)) for plus, minus in sums]
    for group in _solid(spec):
        names = [object_name(group, i) for i in range(group.count)]
        if group.body == "fixed":
            scene.fixed[group.kind] = slice(model.body(names[0]).id, model.body(names[-1]).id + 1)
        else:
            if not scene.free:
                scene.free_qpos = int(model.joint(names[0]).qposadr[0])
                scene.free_qvel = int(model.joint(names[0]).dofadr[0])
            scene.free[group.kind] = slice(num_free, num_free := num_free + group.count)
        if group.body == "gremlin":
            scene.welds = slice(model.equality(names[0]).id, model.equality(names[-1]).id + 1)
    return scene
