"""One environment step from every recorded state, on this engine and on the CPU's.

Costs and goals may differ in two ways alone, which are counted: where the state lies within single precision of a
threshold, and where bodies touched within the step, at other contact points (the colliders are not the same), so that
the threshold lies between the two states that followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import pytest

from sbtrpo.envs.registry import PAPER_TASKS
from sbtrpo.envs.tasks import costs
from sbtrpo.envs.tasks.navigation import Navigation
from tests.gpu.engines import ENGINE, HOPPER, numbers, tensor
from tests.parity.recordings import Recording, Replay, recordings

NEAR = 1e-5
"""How near (m, m/s) to its threshold single precision may decide otherwise: a step is ten to twenty roundings long, and
some of what it does magnifies them."""


@dataclass
class Step:
    """What a step from each state of a recording gave on an engine, on the host."""

    replay: Replay
    reward: Any
    goal_met: Any
    violated: dict[str, Any]
    obs: Any
    qpos: Any


def begin(recording: Recording, engine: str) -> Replay:
    """Worlds in the recorded states before each step."""
    replay = Replay(recording, engine)
    if isinstance(replay.task, Navigation):
        replay.place()
        replay.load_before()
    else:
        qpos, qvel = (recording.before(name, recording[f"reset_{name}"]) for name in ("qpos", "qvel"))
        replay.load(qpos, qvel, np.zeros(len(recording)), np.zeros((len(recording), 0, 3)), 0.0)
    return replay


def step(recording: Recording, engine: str) -> Step:
    replay = begin(recording, engine)
    action = recording["action"].astype(np.float32)
    outcome, failed = replay.task.step(action if engine == "cpu" else tensor(action))
    assert failed is None or not failed.any()
    violated = dict(zip(replay.task.cost_names, numbers(tuple(outcome.violated)), strict=True))
    obs, qpos = (numbers(values).astype(np.float64) for values in (replay.task.observe(), replay.pool.physics.qpos))
    return Step(replay, numbers(outcome.reward), numbers(outcome.goal_met), violated, obs, qpos)


def touches(recording: Recording) -> Any:
    """Whether the robot touches anything but the floor before, within or after each step: (T,)."""
    found = recording.touches | np.concatenate([[False], recording.touches[:-1]])
    replay = begin(recording, "cpu")
    task, physics = replay.task, replay.pool.physics
    if not isinstance(task, Navigation):
        return found
    path = task.gremlin_path()
    physics.ctrl[:] = np.clip(recording["action"], -1, 1)
    for k in range(task.spec.substeps):
        physics.step(1, forward=True, mocap=None if path is None else path[:, k : k + 1])
        for readings in task.scene.touch.values():
            found |= np.any([costs.contacts(task.worlds, reading) > 0 for reading in readings], axis=0)
    return found


def margin(replay: Replay, name: str, world: int) -> float:
    """How far a world of the CPU engine is from where a cost begins, in m or m/s."""
    task, worlds = replay.task, getattr(replay.task, "worlds", None)
    if worlds is None:
        way = (
            replay.pool.physics.qpos[world, 0]
            - replay.recording.before("qpos", replay.recording["reset_qpos"])[world, 0]
        )
        return abs(way / task._dt - task.spec.threshold)
    cost = next(cost for cost in task._costs if cost.name == name)
    if isinstance(cost, costs.Inside):
        return float(np.abs(np.sqrt(worlds.squared[world, cost.among]) - cost.radius).min())
    if isinstance(cost, costs.Outside):
        return float(np.abs(np.abs(worlds.position[world, : len(cost.limits)]) - cost.limits).min())
    if isinstance(cost, costs.Moves):
        speeds = np.linalg.norm(worlds.free_velocity[world, cost.among], axis=1)
        return float(np.abs(speeds - costs.VASE_SPEED_LIMIT).min())
    kind = name.removeprefix("cost_").removesuffix("_contact")
    batch: Any = replay.pool.physics.batch  # type: ignore[attr-defined]
    model, data = batch.get_model(world), batch.get_data(world)
    bodies = [model.body(body).name for body in model.geom_bodyid]
    agent = model.body_rootid == model.body("agent").id
    robot = [geom for geom in range(model.ngeom) if agent[model.geom_bodyid[geom]]]
    others = [geom for geom in range(model.ngeom) if bodies[geom].startswith(kind)]
    depths = [-x.dist for x in data.contact if {*x.geom} & {*robot} and {*x.geom} & {*others}]
    if depths:
        return float(max(depths))
    return min(mujoco.mj_geomDistance(model, data, one, other, 1.0, None) for one in robot for other in others)


def p(values: Any, *shares: float) -> str:
    return "/".join(f"{x:.0e}" for x in np.percentile(values, shares)) if len(values) else "-"


@pytest.mark.parametrize(
    "task", [task if task == HOPPER else pytest.param(task, marks=pytest.mark.slow) for task in PAPER_TASKS]
)
def test_a_step_is_that_of_the_cpu_engine(task: str, report: Callable[[str], None]) -> None:
    gaps: dict[str, list[Any]] = {"qpos": [], "obs": [], "accelerometer": [], "reward": []}
    touching: list[Any] = []
    counts: dict[str, Any] = {}
    for recording in recordings(task):
        ours, theirs = step(recording, ENGINE), step(recording, "cpu")
        touched = touches(recording)
        settled = np.arange(len(recording)) >= int("Car" in task)
        """The Car starts in exact contact with the floor: rounding decides whether it touches."""
        robot = slice(0, 3 if "Point" in task else 13) if isinstance(ours.replay.task, Navigation) else slice(None)
        obs, felt = np.abs(ours.obs - theirs.obs), ours.replay.task.observation_slices.get("accelerometer", slice(0, 0))
        apart = np.abs(ours.qpos - theirs.qpos).max(axis=1)
        gaps["qpos"].append(np.abs(ours.qpos - theirs.qpos)[settled, robot].max(axis=1))
        gaps["obs"].append(np.delete(obs, np.r_[felt], axis=1)[settled].max(axis=1))
        gaps["accelerometer"].append(obs[settled, felt].max(axis=1, initial=0.0))
        gaps["reward"].append(np.abs(ours.reward - theirs.reward)[settled])
        touching.append(touched[settled])
        for name in ours.violated:
            differ = np.flatnonzero(ours.violated[name] != theirs.violated[name])
            margins = np.array([margin(theirs.replay, name, world) for world in differ])
            parted = (margins > NEAR) & touched[differ] & (margins <= 2 * apart[differ])
            far = (margins > NEAR) & ~parted
            found = (theirs.violated[name].sum(), ours.violated[name].sum(), len(differ), parted.sum(), far.sum())
            counts[name] = counts.get(name, np.zeros(5, int)) + found
        differ = np.flatnonzero(ours.goal_met != theirs.goal_met)
        met = (theirs.goal_met.sum(), ours.goal_met.sum(), len(differ), 0, len(differ))
        counts["goals"] = counts.get("goals", np.zeros(5, int)) + met

    touched = np.concatenate(touching)
    found = {name: np.concatenate(parts) for name, parts in gaps.items()}
    free = {name: values[~touched] for name, values in found.items()}
    report(
        f"{task}: {len(touched)} steps, {touched.sum()} with contact; without it p50/p90/p99/worst of coordinates"
        f" {p(free['qpos'], 50, 90, 99, 100)}, observations {p(free['obs'], 50, 90, 99, 100)}, accelerometer"
        f" {p(free['accelerometer'], 50, 90, 99, 100)}, rewards {p(free['reward'], 50, 90, 99, 100)};"
        f" with it coordinates p50/p90 {p(found['qpos'][touched], 50, 90)}"
    )
    for name, (cpu, gpu, differ, parted, far) in counts.items():
        report(f"    {name}: CPU {cpu}, GPU {gpu}, differ {differ}: at a threshold {differ - parted - far},"
               f" after contact {parted}, otherwise {far}")  # fmt: skip
    assert np.percentile(free["qpos"], 99) <= 1e-3
    assert np.percentile(free["obs"], 99) <= 1e-3
    assert np.percentile(free["reward"], 99) <= 1e-5
    assert np.percentile(free["accelerometer"], 90) <= 5e-3  # m/s², of up to a hundred
    if touched.any():
        assert np.percentile(found["qpos"][touched], 90) <= 1e-2
    for *_, parted, far in counts.values():
        assert far == 0
        assert parted <= 0.01 * touched.sum()
