"""Sleeping bodies save time and change no cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import sbtrpo

CHAOS = 1e-6
"""Robots farther apart than this (m, rad) have parted ways: the Point's servo multiplies rounding errors by five a
substep."""


def costs_of(info: dict[str, Any], names: tuple[str, ...]) -> Any:
    return np.stack([info[name] for name in names], axis=1)


def seek(pool: sbtrpo.Pool, kind: str) -> Any:
    """Actions that drive a Point towards the nearest object of a kind, so that something happens."""
    worlds: Any = pool.task.worlds  # type: ignore[attr-defined]
    among = pool.task.slices[kind]  # type: ignore[attr-defined]
    nearest = worlds.squared[:, among].argmin(axis=1)
    gap = worlds.offset[np.arange(pool.num_worlds), among.start + nearest]
    heading = np.arctan2(worlds.frame[:, 1, 0], worlds.frame[:, 0, 0])
    turn = np.angle(np.exp(1j * (np.arctan2(gap[:, 1], gap[:, 0]) - heading)))
    return np.stack([np.where(np.abs(turn) < 0.5, 1.0, 0.0), np.clip(2 * turn, -1, 1)], axis=1)


@pytest.mark.slow
def test_costs_are_the_same_with_and_without_sleep() -> None:
    """The same 100 episodes: step by step as long as the robots agree, and in distribution to the end."""
    task, worlds, steps = "SafetyPointGoal2-v0", 100, 1000
    with_sleep = sbtrpo.make_pool(task, worlds, seed=5)
    without = sbtrpo.make_pool(task, worlds, seed=5, sleep=False)
    np.testing.assert_array_equal(with_sleep.reset()[0], without.reset()[0])
    names = with_sleep.task.cost_names
    rng = np.random.default_rng(5)
    agree = np.ones(worlds, bool)
    compared = violations = 0
    for step in range(steps):
        # Half of the worlds drive at vases, so that they wake, are pushed and come to rest again.
        action = rng.uniform(-1, 1, (worlds, 2))
        drives = (np.arange(worlds) % 2 == 0)[:, None]
        info_a = with_sleep.step(np.where(drives, seek(with_sleep, "vases"), action))[5]
        info_b = without.step(np.where(drives, seek(without, "vases"), action))[5]
        if step < steps - 1:
            gap = np.abs(with_sleep.physics.qpos[:, :3] - without.physics.qpos[:, :3]).max(axis=1)
            agree &= gap < CHAOS
        a, b = costs_of(info_a, names), costs_of(info_b, names)
        np.testing.assert_array_equal(a[agree], b[agree])
        compared += int(agree.sum())
        violations += int(b[agree].any(axis=1).sum())
    assert compared > 2000
    assert violations > 50
    for name in ("cost", *names):
        assert stats.ks_2samp(info_a["episode"][name], info_b["episode"][name]).pvalue > 0.01


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyPointPush2-v0"])
def test_a_sleeping_world_costs_what_the_same_state_costs_awake(task: str) -> None:
    """Beyond chaos too: every state that a run with sleepers passes through, put into worlds in which nobody sleeps."""
    pool = sbtrpo.make_pool(task, 20, seed=1)
    awake = sbtrpo.make_pool(task, 20, seed=1, sleep=False)
    pool.reset()
    awake.reset()
    kind = "vases" if "Goal" in task else "pillars"
    names, slept, violated = pool.task.cost_names, 0, 0
    batch: Any = pool.physics.batch  # type: ignore[attr-defined]
    asleep = batch.bind("tree_asleep")
    for _ in range(300):
        action = seek(pool, kind)
        info = pool.step(action)[5]
        slept += int((asleep >= 0).sum())
        awake.physics.qpos[:], awake.physics.qvel[:] = pool.physics.qpos, pool.physics.qvel
        awake.physics.forward()
        awake.task.refresh()  # type: ignore[attr-defined]
        expected = np.stack(awake.task.evaluate().violated, axis=1)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(costs_of(info, names), expected)
        violated += int(expected.any(axis=1).sum())
    assert slept > 0
    assert violated > 100
