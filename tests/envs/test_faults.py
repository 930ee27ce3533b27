"""A world that fails is isolated: truncated, reset, counted; the others do not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mujoco import batch

import sbtrpo
from sbtrpo.envs.registry import PAPER_TASKS

TASKS = [*PAPER_TASKS, "SafetyPointRun0-v0", "SafetyAntVelocity-v1", "SafetyHumanoidVelocity-v1"]


def twins(task: str) -> tuple[sbtrpo.Pool, sbtrpo.Pool, Any]:
    pools = [sbtrpo.make_pool(task, num_worlds=4, seed=0) for _ in range(2)]
    action = np.full((4, *pools[0].single_action_space.shape), 0.3)
    for pool in pools:
        pool.reset()
        pool.step(action)
    return pools[0], pools[1], action


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("field", "value"), [("qpos", np.nan), ("qvel", np.inf), ("qvel", 1e14)])
def test_a_diverged_world_is_isolated(
    task: str, field: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pool, healthy, action = twins(task)
    last = pool.last_obs
    getattr(pool.physics, field)[1, 0] = value
    obs, reward, cost, terminated, truncated, info = pool.step(action)
    expected = healthy.step(action)
    np.testing.assert_array_equal(info["fault"], [False, True, False, False])
    np.testing.assert_array_equal(truncated, info["fault"] | expected[4])
    assert reward[1] == cost[1] == 0.0
    assert not terminated[1]
    assert pool.faults == 1
    np.testing.assert_array_equal(info["final_obs"][1], last[1])
    assert info["episode"]["length"][1] == 2
    assert info["_episode"][1]
    assert np.isfinite(obs).all()
    assert not list(tmp_path.iterdir())  # MuJoCo would write its log here

    others = [0, 2, 3]
    for _ in range(20):
        for ours, theirs in zip((obs, reward, cost), expected[:3], strict=True):
            np.testing.assert_array_equal(ours[others], theirs[others])
        obs, reward, cost, _, _, info = pool.step(action)
        expected = healthy.step(action)
        assert not info["fault"].any()
    assert pool.faults == 1


@pytest.mark.parametrize(
    ("task", "call"),
    [("SafetyPointGoal2-v0", "step"), ("SafetyPointButton2-v0", "rollout"), ("SafetyPointButton2-v0", "forward")],
)
def test_a_world_in_which_the_engine_raises_is_isolated(task: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have run to the end, so their results count."""
    pool, healthy, action = twins(task)
    physics: Any = pool.physics
    run = getattr(physics.batch, call)

    def failing(*args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()  # once
        run(*args, **kwargs)
        raise batch.SimulationError(np.array([2], np.int32), "out of memory")

    monkeypatch.setattr(physics.batch, call, failing)
    obs, _, _, _, truncated, info = pool.step(action)
    np.testing.assert_array_equal(info["fault"], [False, False, True, False])
    np.testing.assert_array_equal(truncated, info["fault"])
    np.testing.assert_array_equal(obs[[0, 1, 3]], healthy.step(action)[0][[0, 1, 3]])
    assert pool.faults == 1


def test_a_nan_that_only_the_observation_shows_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _, action = twins("SafetyPointGoal2-v0")
    observe = pool.task.observe

    def spoiled(rows: Any = None) -> Any:
        obs = observe(rows)
        if rows is None:
            obs[3, 7] = np.nan
        return obs

    monkeypatch.setattr(pool.task, "observe", spoiled)
    obs, _, _, _, _, info = pool.step(action)
    np.testing.assert_array_equal(info["fault"], [False, False, False, True])
    assert np.isfinite(obs).all()
    assert np.isfinite(info["final_obs"]).all()


def test_a_reward_that_is_not_finite_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, healthy, action = twins("SafetyCarCircle2-v0")
    step = pool.task.step

    def spoiled(action: Any) -> Any:
        outcome, failed = step(action)
        outcome.reward[2] = -np.inf
        return outcome, failed

    monkeypatch.setattr(pool.task, "step", spoiled)
    obs, reward, _, _, truncated, info = pool.step(action)
    expected = healthy.step(action)
    np.testing.assert_array_equal(info["fault"], [False, False, True, False])
    np.testing.assert_array_equal(truncated, info["fault"])
    np.testing.assert_array_equal(reward, np.where(info["fault"], 0.0, expected[1]))
    assert np.isfinite(info["episode"]["return"]).all()
    np.testing.assert_array_equal(obs[[0, 1, 3]], expected[0][[0, 1, 3]])


def test_nothing_of_a_failed_step_is_nan() -> None:
    pool, _, action = twins("SafetyHopperVelocity-v1")
    pool.physics.qpos[1, 0] = np.nan
    info = pool.step(action)[5]
    assert info["fault"][1]
    assert info["x_velocity"][1] == 0.0
    assert np.isfinite(info["x_velocity"]).all()


def test_a_fault_in_the_last_step_of_an_episode_is_one_end() -> None:
    pool, _, action = twins("SafetyPointGoal2-v0")
    state = pool.state_dict()
    state["steps"][:] = 999
    pool.load_state_dict(state)
    pool.physics.qpos[1, 0] = np.nan
    _, _, _, _, truncated, info = pool.step(action)
    assert truncated.all()
    np.testing.assert_array_equal(info["fault"], [False, True, False, False])
    np.testing.assert_array_equal(info["episode"]["length"], [1000] * 4)
    assert "_episode" not in pool.step(action)[5]


def test_faults_are_part_of_the_state() -> None:
    pool, other, action = twins("SafetyHopperVelocity-v1")
    pool.physics.qpos[0, 0] = np.nan
    pool.step(action)
    other.load_state_dict(pool.state_dict())
    assert other.faults == 1
