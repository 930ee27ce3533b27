"""Tasks whose observation tells whether the episode has been violated yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.config.tasks import task_entry
from sbtrpo.envs.custom import spec_from_dict, spec_from_toml, spec_to_toml
from sbtrpo.envs.observation import observation_size, observation_slices
from sbtrpo.envs.registry import get_spec, id_and_version
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.errors import UserError
from sbtrpo.runs.card import export_policy
from sbtrpo.runs.evaluation import evaluate
from tests.envs.test_pool import actions, assert_alike, trace

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {"goal": "SafetyPointGoal2-v0", "push": "SafetyPointPush2-v0"}
"""The tasks of the family that the examples show more of."""


def task_of(observe_violation: bool) -> NavigationSpec:
    """Short episodes, in which a robot that drives straight on meets a hazard, or does not."""
    hazards = {"kind": "hazards", "count": 8, "size": 0.25, "keepout": 0.01, "area": [-0.4, -0.4, 0.4, 0.4]}
    return spec_from_dict(
        {
            "id": "Near-v0",
            "robot": "point",
            "objective": "goal",
            "episode_length": 25,
            "start": [0, 0, 0, 0],
            "robot_keepout": 0.28,
            "observe_violation": observe_violation,
            "objects": [{"kind": "goal"}, hazards],
        }
    )


def straight_on(pool: sbtrpo.Pool, steps: int) -> Any:
    """Random turns at full throttle."""
    driven = actions(pool, steps)
    driven[:, :, 0] = 1.0
    return driven


def pools_of(worlds: int, seed: int = 0, **options: Any) -> list[sbtrpo.Pool]:
    """One whose observation tells of violations, and its twin whose does not."""
    made = [sbtrpo.make_pool(task_of(on), worlds, seed, **options) for on in (True, False)]
    for pool in made:
        pool.reset()
    return made


@pytest.mark.parametrize("end_at_violation", [False, True])
def test_it_tells_what_a_loop_over_the_costs_says_and_changes_nothing_else(end_at_violation: bool) -> None:
    pool, plain = pools_of(6, end_at_violation=end_at_violation)
    np.testing.assert_array_equal(pool.last_obs[:, -1], 1)
    unviolated, seen = np.ones(6), set()
    for action in straight_on(pool, 120):
        (*results, info), (*expected, plain_info) = pool.step(action), plain.step(action)
        for world in range(6):
            if results[2][world] > 0:
                unviolated[world] = 0
        if "final_obs" in info:
            np.testing.assert_array_equal(info["final_obs"][:, -1], unviolated)
            np.testing.assert_array_equal(info["final_obs"][:, :-1], plain_info["final_obs"])
            seen |= set(unviolated[info["_episode"]])
            unviolated[info["_episode"]] = 1
        np.testing.assert_array_equal(results[0][:, -1], unviolated)
        np.testing.assert_array_equal(results[0][:, :-1], expected[0])
        for ours, theirs in zip(results[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(pool.last_obs, results[0])
    assert seen == {0.0, 1.0}


def test_a_restored_pool_remembers() -> None:
    pool, _ = pools_of(6)
    restored, _ = pools_of(6, seed=5)
    steps = straight_on(pool, 60)
    trace(pool, steps[:15])
    assert 0 < pool.last_obs[:, -1].sum() < 6
    pool.wake()
    restored.load_state_dict(pool.state_dict())
    assert_alike(restored.state_dict(), pool.state_dict())
    np.testing.assert_array_equal(trace(restored, steps[15:]), trace(pool, steps[15:]))


def test_a_new_episode_knows_nothing_of_the_last_however_that_ended() -> None:
    pool, _ = pools_of(6)
    pool.step(np.zeros((6, 2)))
    state = pool.state_dict()
    state["sums"][1, :4] = 2.0
    state["obs"][:4, -1] = 0
    pool.load_state_dict(state)
    pool.physics.qpos[[0, 5], 0] = np.nan
    obs, *_, info = pool.step(np.zeros((6, 2)))
    np.testing.assert_array_equal(info["fault"], [True, False, False, False, False, True])
    np.testing.assert_array_equal(info["final_obs"][:, -1], [0, 0, 0, 0, 1, 1])  # a fault by itself costs nothing here
    np.testing.assert_array_equal(obs[:, -1], [1, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(pool.reset()[0][:, -1], 1)


def test_it_is_seen_through_gymnasium_too() -> None:
    env = gymnasium.make("sbtrpo:Task-v0", task=task_of(True))
    space: Any = env.observation_space
    assert (space.low[-1], space.high[-1], space.high[-2], space.low[0]) == (0, 1, 1, -np.inf)
    for seed, throttle in ((0, 1.0), (None, 0.0), (None, 1.0), (1, 0.0)):
        unviolated, over = env.reset(seed=seed)[0][-1], False
        assert unviolated == 1
        while not over:
            obs, _, terminated, truncated, info = env.step(np.array([throttle, 0.0]))
            unviolated *= info["cost"] == 0
            assert obs[-1] == unviolated
            over = terminated or truncated
        assert unviolated == (throttle == 0)


@pytest.mark.parametrize(("name", "task"), SHOWN.items())
def test_the_examples_are_tasks_of_the_family_that_show_more(name: str, task: str) -> None:
    spec, plain = spec_from_toml(EXAMPLES / f"{name}_with_memory.toml"), get_spec(task)
    assert spec.observe_violation
    assert replace(spec, id=task, observe_violation=False) == plain
    size = observation_size(plain)
    assert observation_slices(spec) == {**observation_slices(plain), "unviolated": slice(size, size + 1)}


def test_tasks_that_do_not_show_it_are_what_they_were() -> None:
    """Runs, policies and tables have the versions of their tasks, from before there was this setting."""
    assert task_entry(str(EXAMPLES / "courier.toml")).identity == "CarCourier-v0@3eadc1403817"
    tag: dict[str, Any] = {"id": "Tag-v0", "robot": "car", "objective": "goal", "objects": [{"kind": "goal"}]}
    for settings in (tag, {**tag, "observe_violation": False}):
        assert id_and_version(settings) == ("Tag-v0", "2cbd609d8151")
    shown = spec_from_dict({**tag, "observe_violation": True})
    assert id_and_version(shown) != id_and_version(tag)
    assert "observe_violation = true\n" in spec_to_toml(shown)


def test_training_and_evaluation_work(tmp_path: Path) -> None:
    file = tmp_path / "near.toml"
    file.write_text(spec_to_toml(task_of(True)))
    small: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 200, "total_steps": 400, "hidden": (8,), "threads": 1}
    run = sbtrpo.train(TrainConfig(task=str(file), **small), tmp_path / "run", quiet=True)
    statistics = sbtrpo.load_policy(run).normaliser.state_dict()
    assert (statistics["mean"][-1], statistics["var"][-1]) == (0, 1)  # it is in units of its own, however rare a 0 is
    assert np.all(statistics["mean"][-10:-1] > 0)
    policy, _ = export_policy(run, tmp_path / "policy", episodes=4)
    assert evaluate(policy, 4, task=str(file)).episodes == 4
    file.write_text(spec_to_toml(task_of(False)))
    with pytest.raises(UserError, match="trained with 45 observations and 2 actions, and Near-v0 has 44"):
        evaluate(policy, 4, task=str(file))
