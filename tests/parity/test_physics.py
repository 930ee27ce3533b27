"""Physics parity: one step from every recorded state, and whole episodes where nothing is chaotic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs.registry import PAPER_TASKS
from tests.parity.recordings import Replay, recordings

NAVIGATION = [task for task in PAPER_TASKS if "Velocity" not in task]
VELOCITY = [task for task in PAPER_TASKS if "Velocity" in task]


def one_step_errors(task: str) -> tuple[Any, Any, Any]:
    """Largest error in the robot's coordinates after one step, whether anything touched, and whether the box moved."""
    errors, contacts, moved = [], [], []
    for recording in recordings(task):
        replay = Replay(recording)
        replay.place()
        replay.load_before()
        replay.task.step(recording["action"])
        robot = slice(0, 3 if "Point" in task else 13)
        errors.append(np.abs(replay.pool.physics.qpos[:, robot] - recording["qpos"][:, robot]).max(axis=1))
        before = np.concatenate([[False], recording.touches[:-1]])
        contacts.append(recording.touches | before)
        speed = np.abs(recording.before("qvel", recording["reset_qvel"])[:, -6:]).max(axis=1)
        moved.append(speed > 1e-6 if "Push" in task else np.zeros(len(recording), bool))
    return np.concatenate(errors), np.concatenate(contacts), np.concatenate(moved)


@pytest.mark.parametrize("task", NAVIGATION)
def test_one_step_reaches_the_recorded_state(task: str, report: Callable[[str], None]) -> None:
    errors, contact, moved = one_step_errors(task)
    free = errors[~contact & ~moved] if task == "SafetyCarPush2-v0" else errors[~contact]
    report(f"{task} without contact: p50 {np.median(free):.0e}, p90 {np.percentile(free, 90):.0e},"
           f" p99 {np.percentile(free, 99):.0e}, worst {free.max():.0e} ({len(free)} steps)")  # fmt: skip
    assert np.percentile(free, 90) <= 1e-6
    if contact.any():
        touching = errors[contact]
        report(f"{task} with contact:    p50 {np.median(touching):.0e}, p90 {np.percentile(touching, 90):.0e},"
               f" worst {touching.max():.0e} ({len(touching)} steps)")  # fmt: skip
        assert np.percentile(touching, 90) <= 1e-2


@pytest.mark.parametrize("task", VELOCITY)
def test_whole_recordings_are_followed_in_closed_loop(task: str, report: Callable[[str], None]) -> None:
    """Actions in, and states, rewards, costs and ends of episodes as recorded, resets in between included."""
    worst_position = worst_velocity = 0.0
    for recording in recordings(task):
        pool = sbtrpo.make_pool(task, num_worlds=1, seed=recording.seed, layout_rng="original")
        obs, _ = pool.reset()
        np.testing.assert_allclose(obs[0], recording["reset_obs"], rtol=0, atol=1e-12)
        episode = 0
        for k, action in enumerate(recording["action"].astype(np.float32)):
            obs, reward, cost, terminated, truncated, info = pool.step(action[None])
            last = info["final_obs"][0] if "final_obs" in info else obs[0]
            parts = pool.task.observation_slices
            error = np.abs(last - recording["obs"][k])
            worst_position = max(worst_position, error[parts["qpos"]].max())
            worst_velocity = max(worst_velocity, error[parts["qvel"]].max())
            np.testing.assert_allclose(reward[0], recording["reward"][k], rtol=0, atol=1e-6)
            assert cost[0] == recording["cost"][k]
            assert terminated[0] == recording["terminated"][k]
            assert truncated[0] == recording["truncated"][k]
            if terminated[0] and episode + 1 < len(recording["ep_start"]):
                episode += 1
                np.testing.assert_allclose(obs[0], recording["ep_reset_obs"][episode], rtol=0, atol=1e-12)
        assert episode == len(recording["ep_start"]) - 1
    report(f"{task} closed loop: positions {worst_position:.0e}, velocities {worst_velocity:.0e}")
    assert worst_position <= 1e-6
    # Swimmer's rounding errors double about every 30 steps; its velocities are ten times its positions.
    assert worst_velocity <= 1e-5
