"""Function parity: recorded states in, recorded observations, rewards and costs out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sbtrpo.envs.spec import NavigationSpec
from tests.parity.recordings import Recording, Replay, all_recordings

NAVIGATION = [r for r in all_recordings() if "Velocity" not in r.task]
ACCELEROMETER = slice(0, 3)
ACCELEROMETER_TOLERANCE = {"point": 1e-6, "car": 1e-3}


def replayed(recording: Recording) -> Replay:
    """Worlds in the recorded states after each step, with the targets and distances of before it."""
    replay = Replay(recording)
    replay.place()
    replay.load_before()
    replay.load_after()
    return replay


@pytest.mark.parametrize("recording", NAVIGATION, ids=lambda r: r.path.stem)
def test_recorded_states_give_the_recorded_observation_reward_and_cost(recording: Recording) -> None:
    replay = replayed(recording)
    outcome = replay.task.evaluate()
    np.testing.assert_allclose(outcome.reward, recording["reward"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(outcome.goal_met, recording["goal_met"])
    expected = recording.costs()
    assert set(replay.task.cost_names) == set(expected)
    for name, violated in zip(replay.task.cost_names, outcome.violated, strict=True):
        np.testing.assert_array_equal(violated, expected[name], err_msg=name)
    np.testing.assert_array_equal(np.any(outcome.violated, axis=0), recording["cost"])

    replay.aim_after()
    error = np.abs(replay.task.observe() - recording["obs"])
    assert np.delete(error, np.r_[ACCELEROMETER], axis=1).max() <= 1e-9
    spec = replay.pool.spec
    assert isinstance(spec, NavigationSpec)
    assert error[~recording.touches, ACCELEROMETER].max() <= ACCELEROMETER_TOLERANCE[spec.robot]


@pytest.mark.parametrize("recording", NAVIGATION, ids=lambda r: r.path.stem)
def test_button_timer_follows_the_recording(recording: Recording) -> None:
    replay = replayed(recording)
    replay.task.evaluate()
    timer = recording["button_timer"] if "button_timer" in recording else np.zeros(len(recording))
    np.testing.assert_array_equal(replay.task.worlds.timer, timer)


def test_recordings_cover_every_task_and_every_cost_component() -> None:
    """The small set that comes with the tests must exercise everything, or parity says little."""
    seen: dict[str, set[str]] = {}
    for recording in all_recordings():
        costs = recording.costs() or {"cost_velocity": recording["cost"]}
        violated = {name for name, values in costs.items() if values.any()}
        seen.setdefault(recording.task, set()).update(violated)
    assert seen == {
        "SafetyPointGoal2-v0": {"cost_hazards", "cost_vases_contact", "cost_vases_velocity"},
        "SafetyPointPush2-v0": {"cost_hazards", "cost_pillars"},
        "SafetyPointButton2-v0": {"cost_buttons", "cost_gremlins", "cost_hazards"},
        "SafetyCarGoal2-v0": {"cost_hazards", "cost_vases_contact", "cost_vases_velocity"},
        "SafetyCarPush2-v0": {"cost_hazards", "cost_pillars"},
        "SafetyCarCircle2-v0": {"cost_out_of_boundary"},
        "SafetyHopperVelocity-v1": {"cost_velocity"},
        "SafetySwimmerVelocity-v1": {"cost_velocity"},
    }
    goals = {r.task for r in NAVIGATION if r["goal_met"].any()}
    assert goals == {r.task for r in NAVIGATION if "Circle" not in r.task}


def test_observation_parts_have_the_recorded_places() -> None:
    for recording in NAVIGATION:
        parts = json.loads(str(recording["meta"]))["obs_slices"]
        replay = Replay(recording)
        ours = {name: [part.start, part.stop] for name, part in replay.task.observation_slices.items()}
        assert sorted(ours.values()) == sorted(parts.values())
        for name, place in parts.items():
            if name in ours:
                assert ours[name] == place
