"""The velocity tasks against a plain loop over `mj_step`, with Gymnasium's models and the page's formulas."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import mujoco
import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs.original import OriginalStreams
from sbtrpo.envs.physics.cpu import _keep_log_file_out_of_the_way
from sbtrpo.envs.registry import get_spec
from sbtrpo.envs.robots import RUNNERS
from sbtrpo.envs.scene import compile_velocity
from sbtrpo.envs.spec import VelocitySpec
from sbtrpo.envs.streams import CounterStreams
from sbtrpo.envs.tasks.noise import normal
from sbtrpo.envs.tasks.velocity import is_healthy


@dataclass(frozen=True)
class Page:
    """A robot's numbers, copied from section 10 of the page."""

    file: str
    thresholds: tuple[float, float]
    planar: tuple[bool, bool]
    substeps: int
    timestep: float
    noise: float
    normal: bool
    weights: tuple[float, float, float]
    """Of the forward velocity, of survival, of the squared actions."""
    unseen: int
    clipped: bool = False


PAGE = {
    "HalfCheetah": Page("half_cheetah", (2.8795, 3.2096), (False, False), 5, 0.01, 0.1, True, (1, 0, 0.1), 1),
    "Hopper": Page("hopper", (0.37315, 0.7402), (False, False), 4, 0.002, 0.005, False, (1, 1, 1e-3), 1, True),
    "Walker2d": Page("walker2d", (1.7075, 2.3415), (False, False), 4, 0.002, 0.005, False, (1, 1, 1e-3), 1, True),
    "Ant": Page("ant", (2.5745, 2.6222), (True, True), 5, 0.01, 0.1, True, (1, 1, 0.5), 2),
    "Humanoid": Page("humanoid", (2.3475, 1.4149), (True, True), 5, 0.003, 0.01, False, (1.25, 5, 0.1), 2),
    "Swimmer": Page("swimmer", (0.04845, 0.2282), (True, False), 4, 0.01, 0.1, False, (1, 0, 1e-4), 2),
}
TASKS = [(robot, version) for robot in PAGE for version in (0, 1)]
FORCES = slice(292, 376)  # Humanoid's cfrc_ext


def velocity_spec(robot: str, version: int = 1) -> VelocitySpec:
    spec = get_spec(f"Safety{robot}Velocity-v{version}")
    assert isinstance(spec, VelocitySpec)
    return spec


class Replica:
    """One world of a velocity task, as the original has it: Gymnasium's file, `mj_step`, and plain formulas."""

    def __init__(self, robot: str, version: int, seed: int) -> None:
        self.robot, self.version, self.page = robot, version, PAGE[robot]
        text = files("gymnasium").joinpath("envs", "mujoco", "assets", f"{self.page.file}.xml").read_text()
        _keep_log_file_out_of_the_way()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of HalfCheetah's total mass
            self.model = mujoco.MjModel.from_xml_string(text)
        self.model.geom_margin[:] /= 2
        self.data = mujoco.MjData(self.model)
        self.rng = np.random.default_rng(seed)

    def reset(self) -> Any:
        page, model, data = self.page, self.model, self.data
        mujoco.mj_resetData(model, data)
        data.qpos[:] += self.rng.uniform(-page.noise, page.noise, model.nq)
        data.qvel[:] = (
            page.noise * self.rng.standard_normal(model.nv)
            if page.normal
            else self.rng.uniform(-page.noise, page.noise, model.nv)
        )
        if self.robot in ("Ant", "Humanoid"):
            data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
        mujoco.mj_forward(model, data)
        return self.observation()

    def place(self) -> Any:
        if self.robot == "Ant":
            return self.data.body("torso").xpos[:2].copy()
        if self.robot == "Humanoid":
            mass = self.model.body_mass
            return (mass @ self.data.xipos / mass.sum())[:2]
        return self.data.qpos[:2].copy()

    def observation(self) -> Any:
        page, data = self.page, self.data
        qvel = np.clip(data.qvel, -10, 10) if page.clipped else data.qvel
        parts = [data.qpos[page.unseen :], qvel]
        if self.robot == "Humanoid":
            parts += [data.cinert.ravel(), data.cvel.ravel(), data.qfrc_actuator, data.cfrc_ext.ravel()]
        return np.concatenate(parts)

    def step(self, action: Any) -> tuple[Any, float, float, bool]:
        page, data = self.page, self.data
        before = self.place()
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, nstep=page.substeps)
        mujoco.mj_rnePostConstraint(self.model, data)
        velocity = (self.place() - before) / (page.substeps * page.timestep)
        forward, survival, effort = page.weights
        reward = forward * velocity[0] + survival - effort * float(np.sum(np.square(action)))
        speed = math.hypot(*velocity) if page.planar[self.version] else velocity[0]
        return self.observation(), reward, float(speed > page.thresholds[self.version]), not self.healthy()

    def healthy(self) -> bool:
        q, v = self.data.qpos, self.data.qvel
        if self.robot == "Hopper":
            rest = np.concatenate([q, v])[2:]
            return bool(q[1] > 0.7 and -0.2 < q[2] < 0.2 and (np.abs(rest) < 100).all())
        if self.robot == "Walker2d":
            return bool(0.8 < q[1] < 2 and -1 < q[2] < 1)
        if self.robot == "Ant":
            return bool(0.2 <= q[2] <= 1)
        return bool(1 < q[2] < 2) if self.robot == "Humanoid" else True


def follow(robot: str, version: int, seed: int, steps: int) -> tuple[list[float], list[Any], int, int]:
    """Play a pool and the replica side by side; returns errors, contact forces of both, and what was met."""
    replica = Replica(robot, version, seed)
    pool = sbtrpo.make_pool(f"Safety{robot}Velocity-v{version}", 1, seed=seed, layout_rng="original")
    expected, obs = replica.reset(), pool.reset()[0][0]
    errors, forces, falls, costs = [float(np.abs(obs - expected).max())], [], 0, 0
    rng = np.random.default_rng(seed)
    high = 1.3 * pool.single_action_space.high  # beyond the bounds, which only the engine minds
    for _ in range(steps):
        action = rng.uniform(-high, high)
        expected, reward, cost, fallen = replica.step(action)
        obs, ours, our_cost, terminated, _, info = pool.step(action[None])
        last = info["final_obs"][0] if "final_obs" in info else obs[0]
        if robot == "Humanoid":
            forces.append(np.stack([last[FORCES], expected[FORCES]]))
            last, expected = np.delete(last, FORCES), np.delete(expected, FORCES)
        errors += [float(np.abs(last - expected).max()), abs(float(ours[0]) - reward)]
        assert our_cost[0] == cost
        assert terminated[0] == fallen
        costs += int(cost)
        if fallen:
            falls += 1
            errors.append(float(np.abs(obs[0] - replica.reset()).max()))
    return errors, forces, falls, costs


@pytest.mark.parametrize(("robot", "version"), TASKS)
def test_tasks_follow_a_plain_loop_over_mj_step(robot: str, version: int) -> None:
    """Observation, reward, cost, termination and the original's resets, in closed loop."""
    steps = 25 if robot == "HalfCheetah" else 45  # in which rounding errors grow tenfold every five steps
    played = [follow(robot, version, seed, steps) for seed in range(3)]
    assert max(max(errors) for errors, _, _, _ in played) < 1e-7
    if RUNNERS[robot.lower()].healthy and robot != "Ant":  # which stays up longer
        assert sum(falls for _, _, falls, _ in played) > 0


def test_both_sides_of_every_threshold_were_seen() -> None:
    """The costs above were compared where they are 0 and where they are 1: a threshold amid the speeds of a run."""
    for robot, version in TASKS:
        spec = velocity_spec(robot, version)
        pool = sbtrpo.make_pool(spec, num_worlds=6, seed=0)
        pool.reset()
        rng = np.random.default_rng(0)
        for _ in range(5):
            info = pool.step(rng.uniform(-0.4, 0.4, (6, RUNNERS[spec.robot].action_dim)))[5]
        speed = np.hypot(info["x_velocity"], info["y_velocity"]) if spec.planar else info["x_velocity"]
        assert len(set(speed)) == 6
        limit = float(np.sort(speed)[3])
        twin = sbtrpo.make_pool(replace(spec, threshold=limit), num_worlds=6, seed=0)
        twin.reset()
        rng = np.random.default_rng(0)
        for _ in range(5):
            cost = twin.step(rng.uniform(-0.4, 0.4, (6, RUNNERS[spec.robot].action_dim)))[2]
        np.testing.assert_array_equal(cost, speed > limit)  # strictly: the fastest two, not the one at the limit
        assert cost.sum() == 2


def test_contact_forces_of_the_humanoid() -> None:
    """They belong to the state after the step; the original's to the last Runge-Kutta stage, which is close to it."""
    gaps = []
    for seed in range(4):
        ours, theirs = np.stack(follow("Humanoid", 1, seed, 60)[1]).swapaxes(0, 1)
        touching = np.abs(theirs).max(axis=1) > 1.0
        assert touching.sum() > 5
        gaps.append(np.abs(ours - theirs).max(axis=1)[touching] / np.abs(theirs).max(axis=1)[touching])
    assert np.median(np.concatenate(gaps)) < 0.01
    assert np.percentile(np.concatenate(gaps), 80) < 0.1


def test_contact_forces_are_those_of_the_state_after_the_step() -> None:
    pool = sbtrpo.make_pool("SafetyHumanoidVelocity-v1", num_worlds=2, seed=3)
    pool.reset()
    physics: Any = pool.physics
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(60):
        obs, _, _, terminated, _, _ = pool.step(rng.uniform(-0.4, 0.4, (2, 17)))
        if terminated.any():
            continue
        for world in range(2):
            data = mujoco.MjData(physics.model)
            mujoco.mj_setState(physics.model, data, physics.batch.state[world], mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(physics.model, data)
            mujoco.mj_rnePostConstraint(physics.model, data)
            np.testing.assert_allclose(obs[world, FORCES], data.cfrc_ext.ravel(), rtol=1e-9, atol=1e-9)
            seen += bool(data.cfrc_ext.any())
    assert seen > 10


@pytest.mark.parametrize("robot", PAGE)
def test_models_and_rows_have_the_numbers_of_the_page(robot: str) -> None:
    page, runner = PAGE[robot], RUNNERS[robot.lower()]
    model = compile_velocity(velocity_spec(robot))
    assert model.opt.timestep == runner.timestep == page.timestep
    assert model.nu == runner.action_dim
    assert runner.unseen == page.unseen
    assert model.nq - page.unseen == runner.observation_parts["qpos"]
    assert model.nv == runner.observation_parts["qvel"]
    expected = Replica(robot, 1, 0).model
    geoms = (
        ("geom_margin", "geom_friction", "geom_solref", "geom_size") if robot != "Swimmer" else ()
    )  # theirs: a floor
    bodies = ("body_mass", "body_inertia", "body_ipos", "dof_damping", "dof_armature", "jnt_range", "qpos0")
    for field in (*geoms, *bodies, "actuator_gear", "actuator_ctrlrange"):
        np.testing.assert_allclose(getattr(model, field), getattr(expected, field), rtol=1e-12, atol=1e-12)
    assert (model.opt.integrator, model.opt.solver) == (expected.opt.integrator, expected.opt.solver)
    assert model.opt.iterations == expected.opt.iterations
    for version in (0, 1):
        spec = velocity_spec(robot, version)
        assert (spec.threshold, spec.planar) == (page.thresholds[version], page.planar[version])
        assert (spec.forward_reward, spec.survival_reward, spec.control_cost) == page.weights
        assert (spec.substeps, spec.noise, spec.normal_velocities) == (page.substeps, page.noise, page.normal)
        assert spec.episode_length == 1000


def test_margins_are_half_of_the_files() -> None:
    margins = {robot: float(compile_velocity(velocity_spec(robot)).geom_margin.max()) for robot in PAGE}
    expected = {"HalfCheetah": 0, "Hopper": 0.0005, "Walker2d": 0, "Ant": 0.005, "Humanoid": 0.0005, "Swimmer": 0}
    assert margins == expected


@pytest.mark.parametrize(
    ("robot", "entries", "healthy"),
    [
        ("Hopper", {1: 0.7}, False), ("Hopper", {1: 0.71}, True), ("Hopper", {1: 50.0}, True),
        ("Hopper", {2: 0.2}, False), ("Hopper", {2: -0.2}, False), ("Hopper", {2: 0.19}, True),
        ("Hopper", {3: 100.0}, False), ("Hopper", {3: 99.0}, True), ("Hopper", {0: 1e6}, True),
        ("Walker2d", {1: 0.8}, False), ("Walker2d", {1: 2.0}, False), ("Walker2d", {1: 1.99}, True),
        ("Walker2d", {2: -1.0}, False), ("Walker2d", {2: 0.99}, True), ("Walker2d", {3: 200.0}, True),
        ("Ant", {2: 0.2}, True), ("Ant", {2: 1.0}, True), ("Ant", {2: 0.199}, False), ("Ant", {2: 1.001}, False),
        ("Humanoid", {2: 1.0}, False), ("Humanoid", {2: 2.0}, False), ("Humanoid", {2: 1.01}, True),
    ],
)  # fmt: skip
def test_episodes_end_where_the_page_says(robot: str, entries: dict[int, float], healthy: bool) -> None:
    qpos = compile_velocity(velocity_spec(robot)).qpos0[None].copy()
    for i, value in entries.items():
        qpos[0, i] = value
    assert bool(is_healthy(np, RUNNERS[robot.lower()], qpos, np.zeros((1, 30)))[0]) == healthy


def test_fast_velocities_of_the_hopper_count_and_those_of_others_do_not() -> None:
    for robot, healthy in (("Hopper", False), ("Walker2d", True)):
        qpos = compile_velocity(velocity_spec(robot)).qpos0[None].copy()
        qvel = np.full((1, 6), 100.0)
        assert bool(is_healthy(np, RUNNERS[robot.lower()], qpos, qvel)[0]) == healthy


@pytest.mark.parametrize("robot", PAGE)
def test_observed_velocities_are_clipped_where_the_page_says(robot: str) -> None:
    pool = sbtrpo.make_pool(velocity_spec(robot), num_worlds=1)
    pool.reset()
    pool.physics.qvel[:] = 25.0
    shown = pool.task.observe()[0, pool.task.observation_slices["qvel"]]
    assert (shown == (10.0 if PAGE[robot].clipped else 25.0)).all()


def test_orientations_at_the_start_are_unit_quaternions() -> None:
    for robot in ("Ant", "Humanoid"):
        pool = sbtrpo.make_pool(velocity_spec(robot), num_worlds=50)
        obs, _ = pool.reset()
        np.testing.assert_allclose(np.linalg.norm(obs[:, 1:5], axis=1), 1, rtol=0, atol=1e-15)
        assert np.ptp(obs[:, 2]) > 0


def test_float32_actions_pay_in_their_own_precision_but_for_the_humanoid() -> None:
    for robot in ("Walker2d", "Humanoid"):
        action = np.random.default_rng(0).uniform(-0.4, 0.4, (1, RUNNERS[robot.lower()].action_dim)).astype(np.float32)
        pool = sbtrpo.make_pool(velocity_spec(robot), num_worlds=1)
        pool.reset()
        _, reward, _, _, _, info = pool.step(action)
        forward, survival, weight = PAGE[robot].weights
        effort = (forward * info["x_velocity"] + survival - reward) / weight
        precise = np.sum(action.astype(float) ** 2)
        if robot == "Humanoid":
            assert effort == pytest.approx(precise, rel=1e-12)
        else:
            assert effort == pytest.approx(float(np.sum(action * action)), rel=1e-12)
            assert effort != pytest.approx(precise, rel=1e-12)


# ---- normal noise ---------------------------------------------------------------------------------------------------


def test_normal_noise_has_the_moments_and_tails_of_the_normal_distribution() -> None:
    from scipy import stats

    draws = normal(CounterStreams(2000, seed=1), np.arange(2000), 7)
    assert draws.shape == (2000, 7)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(draws.T) - np.eye(7)).max() < 0.1


def test_normal_noise_does_not_depend_on_who_draws_with_whom() -> None:
    together = normal(CounterStreams(5, seed=1), np.arange(5), 4)
    streams = CounterStreams(5, seed=1)
    apart = np.concatenate([normal(streams, np.array([row]), 4) for row in (4, 0, 2, 1, 3)])
    np.testing.assert_array_equal(apart[[1, 3, 2, 4, 0]], together)


def test_original_normal_noise_is_numpys_and_the_stream_goes_on_behind_it() -> None:
    streams = OriginalStreams(2, 9, "pcg64")
    rows = np.arange(2)
    expected = [np.random.default_rng(9 + row) for row in rows]
    for count in (3, 500, 1):  # 500 normal values need a few words more
        np.testing.assert_array_equal(streams.peek(rows, 2), [g.random(2) for g in expected])
        streams.advance(rows, 2)
        np.testing.assert_array_equal(normal(streams, rows, count), [g.standard_normal(count) for g in expected])
