"""The compiled scenes: numbers of the original, and touch readings that count what they should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest

from sbtrpo.envs import spec as s
from sbtrpo.envs.physics.cpu import CpuPhysics
from sbtrpo.envs.registry import PAPER_TASKS, get_spec
from sbtrpo.envs.scene import compile_navigation, compile_velocity
from sbtrpo.envs.spec import NavigationSpec, VelocitySpec

NAVIGATION = [task for task in PAPER_TASKS if "Velocity" not in task]


@pytest.mark.parametrize(
    ("task", "nq", "nv"),
    [
        ("SafetyPointPush2-v0", 10, 9),
        ("SafetyPointButton2-v0", 45, 39),
        ("SafetyPointGoal2-v0", 73, 63),
        ("SafetyCarPush2-v0", 20, 17),
        ("SafetyCarCircle2-v0", 13, 11),
        ("SafetyCarGoal2-v0", 83, 71),
    ],
)
def test_states_have_the_originals_size(task: str, nq: int, nv: int) -> None:
    spec = get_spec(task)
    assert isinstance(spec, NavigationSpec)
    model = compile_navigation(spec).model
    assert (model.nq, model.nv) == (nq, nv)
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER


def test_masses_are_the_originals() -> None:
    def mass(task: str, body: str) -> float:
        spec = get_spec(task)
        if isinstance(spec, VelocitySpec):
            return float(compile_velocity(spec).body(body).mass[0])
        model = compile_navigation(spec).model
        return float(model.body(body).subtreemass[0])

    assert mass("SafetyPointGoal2-v0", "agent") == pytest.approx(0.005188790204786391, rel=1e-12)
    assert mass("SafetyCarGoal2-v0", "agent") == pytest.approx(0.0304449847, rel=1e-8)
    assert mass("SafetyPointGoal2-v0", "vases3") == pytest.approx(8e-6, rel=1e-12)
    assert mass("SafetyPointPush2-v0", "push_box") == pytest.approx(1.28e-4, rel=1e-12)
    assert mass("SafetyCarPush2-v0", "push_box") == pytest.approx(1.5625e-5, rel=1e-12)
    assert mass("SafetyHopperVelocity-v1", "foot") == pytest.approx(5.31557, rel=1e-5)
    assert mass("SafetySwimmerVelocity-v1", "mid") == pytest.approx(35.6047, rel=1e-5)


def counted(model: Any, data: Any, kind: str) -> int:
    """Contacts between the robot's geoms and those of a kind, from the contact list."""

    def of(geom: int) -> str:
        body = model.geom_bodyid[geom]
        return "agent" if model.body_rootid[body] == model.body("agent").id else model.body(body).name

    pairs = [{of(contact.geom1), of(contact.geom2)} for contact in data.contact]
    return sum(any(other.startswith(kind) for other in pair - {"agent"}) for pair in pairs if "agent" in pair)


def crowd(robot: str) -> NavigationSpec:
    """A task with every solid kind, so that readings must be told apart."""
    solid = (s.buttons(2, cost=True), s.pillars(2, cost=True), s.vases(3, cost=True), s.push_box(0.2, 0.001))
    return NavigationSpec("Crowd-v0", robot, "goal", (s.goal(0.3, 0.3), *solid), extent=2.0)


@pytest.mark.parametrize(
    "spec",
    [crowd("point"), crowd("car"), *(get_spec(task) for task in NAVIGATION)],
    ids=lambda spec: f"{spec.id}-{spec.robot}",
)
def test_touch_readings_count_the_contacts_of_the_contact_list(spec: NavigationSpec) -> None:
    """With robot and objects thrown on one heap, whichever way the sensors are laid out."""
    scene = compile_navigation(spec, sleep=False)
    physics = CpuPhysics(scene.model, 40, 1)
    rng = np.random.default_rng(0)
    body_pos = physics.field("body_pos")
    for bodies in scene.fixed.values():
        body_pos[:, bodies, :2] = rng.uniform(-0.35, 0.35, (40, bodies.stop - bodies.start, 2))
    physics.reset(np.arange(40))
    for joint in range(scene.model.njnt):
        if scene.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            address = scene.model.jnt_qposadr[joint]
            physics.qpos[:, address : address + 2] = rng.uniform(-0.35, 0.35, (40, 2))
    physics.forward()
    touched = 0
    for world in range(40):
        data, model = physics.batch.get_data(world), physics.batch.get_model(world)
        for kind, readings in scene.touch.items():
            ours = sum(
                sum(physics.sensordata[world, k] for k in reading.plus)
                - sum(physics.sensordata[world, k] for k in reading.minus)
                for reading in readings
            )
            assert ours == counted(model, data, kind)
            touched += ours > 0
    assert touched > 20 or not scene.touch


def test_a_kind_that_neither_costs_nor_is_a_target_has_no_sensor() -> None:
    spec = get_spec("SafetyPointPush2-v0")
    assert isinstance(spec, NavigationSpec)
    free = replace(spec, groups=tuple(replace(g, cost=False) for g in spec.groups))
    assert compile_navigation(free).touch == {}
    assert set(compile_navigation(spec).touch) == {"pillars", "push_box"}
