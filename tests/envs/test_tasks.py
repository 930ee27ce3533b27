"""Rare turns of an episode go as they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs import layout, registry
from sbtrpo.envs import spec as s
from sbtrpo.envs.spec import NavigationSpec

GOAL = "SafetyPointGoal2-v0"
BOX = s.push_box(0.2, 0.001)


def pool_of(spec: NavigationSpec, monkeypatch: pytest.MonkeyPatch, worlds: int = 3) -> sbtrpo.Pool:
    monkeypatch.setitem(registry._TASKS, spec.id, spec)
    pool = sbtrpo.make_pool(spec.id, num_worlds=worlds)
    pool.reset()
    return pool


def put_goal_on_the_robot(pool: sbtrpo.Pool, world: int) -> None:
    task: Any = pool.task
    task.worlds.objects[world, task.slices["goal"], :2] = task.worlds.position[world, :2]
    task.refresh()
    task.remember(np.array([world]))


def test_only_vases_cost_when_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    both = NavigationSpec("Both", "point", "goal", (s.goal(0.3, 0.305), BOX, s.vases(2, cost=True)), 2.0)
    pool = pool_of(both, monkeypatch)
    task: Any = pool.task
    for world, kind in ((0, "push_box"), (1, "vases")):
        task.worlds.free_velocity[world, task.scene.free[kind].start, 0] = 0.5
    np.testing.assert_array_equal(pool.step(np.zeros((3, 2)))[5]["cost_vases_velocity"], [0, 1, 0])


def test_a_goal_in_the_last_step_counts_and_the_next_episode_begins() -> None:
    pool = sbtrpo.make_pool(GOAL, num_worlds=2, seed=3)
    pool.reset()
    state = pool.state_dict()
    state["steps"][:] = 999
    pool.load_state_dict(state)
    put_goal_on_the_robot(pool, 0)
    _, reward, _, terminated, truncated, info = pool.step(np.zeros((2, 2)))
    assert reward[0] > 0.9
    assert not terminated.any()
    assert truncated.all()
    np.testing.assert_array_equal(info["goal_met"], [True, False])
    np.testing.assert_array_equal(info["episode"]["goals"], [1, 0])
    np.testing.assert_array_equal(info["episode"]["return"], reward)


def test_without_room_for_the_next_goal_the_episode_terminates(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = sbtrpo.make_pool(GOAL, num_worlds=2, seed=3)
    pool.reset()
    put_goal_on_the_robot(pool, 1)
    draw_place = layout.draw_place

    def in_vain(*args: Any) -> Any:
        monkeypatch.undo()  # the next episode finds room
        xy, found = draw_place(*args)
        return np.zeros_like(xy), np.zeros_like(found)

    monkeypatch.setattr(layout, "draw_place", in_vain)
    _, reward, _, terminated, truncated, info = pool.step(np.zeros((2, 2)))
    np.testing.assert_array_equal(terminated, [False, True])
    assert not truncated.any()
    assert reward[1] > 0.9
    assert info["episode"]["goals"][1] == 1
    # Its last observation shows the goal where it was, under the robot.
    assert info["final_obs"][1, pool.task.observation_slices["goal_lidar"]].max() > 0.95
    assert pool.faults == 0


def test_a_fall_in_the_last_step_is_both_termination_and_truncation() -> None:
    pool = sbtrpo.make_pool("SafetyHopperVelocity-v1", num_worlds=2)
    pool.reset()
    state = pool.state_dict()
    state["steps"][:] = 999
    pool.load_state_dict(state)
    pool.physics.qpos[0, 1] = 0.5
    _, _, _, terminated, truncated, info = pool.step(np.zeros((2, 3)))
    np.testing.assert_array_equal(terminated, [True, False])
    np.testing.assert_array_equal(truncated, [True, True])
    np.testing.assert_array_equal(info["episode"]["length"], [1000, 1000])
