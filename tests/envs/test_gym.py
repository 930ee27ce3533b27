"""The tasks as Gymnasium environments, for other people's algorithms."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

import sbtrpo
from sbtrpo.envs import get_spec, registry
from sbtrpo.envs.gym import SafetyEnv, SafetyVectorEnv, SixValues, register, register_gymnasium

GOAL, HOPPER = "SafetyPointGoal2-v0", "SafetyHopperVelocity-v1"
EXAMPLE = Path(__file__).parents[2] / "examples" / "stable_baselines3_ppo.py"
COURIER = EXAMPLE.with_name("courier.toml")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*m(in|ax)imum value is -?infinity"),  # sensors have no bounds
    pytest.mark.filterwarnings("ignore:.*is out of date"),  # tasks of which there is a version 1
]


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_gymnasium()


def make(task: str, **settings: Any) -> Any:
    return gymnasium.make(f"sbtrpo:{task}", **settings)


# ---- one world -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [GOAL, HOPPER, "SafetyCarCircle2-v0", "SafetyPointButton2-v0"])
def test_gymnasiums_own_checker_is_content(task: str) -> None:
    check_env(make(task).unwrapped, skip_render_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("task", sbtrpo.task_ids())
def test_gymnasiums_own_checker_is_content_with_all_tasks(task: str) -> None:
    check_env(make(task).unwrapped, skip_render_check=True)


def test_one_import_registers_every_task() -> None:
    code = f"import gymnasium; env = gymnasium.make('sbtrpo:{GOAL}'); env.reset(); print(env.step([0.1, 0])[4]['cost'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) >= 0
    assert set(sbtrpo.task_ids()) <= set(gymnasium.registry)


def test_registering_again_changes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    before = dict(gymnasium.registry)
    register_gymnasium()
    assert gymnasium.registry == before
    assert not recwarn.list


@pytest.fixture
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    before = set(gymnasium.registry)
    yield
    for name in set(gymnasium.registry) - before:
        del gymnasium.registry[name]


def length_of(env: Any) -> int:
    """Steps of an episode in which nothing is done."""
    env.reset(seed=0)
    for step in itertools.count(1):
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape))
        if terminated or truncated:
            return step
    raise AssertionError


def test_a_task_in_a_file_is_made_by_its_path() -> None:
    env = gymnasium.make("sbtrpo:Task-v0", task=str(COURIER))
    pool = sbtrpo.make_pool(COURIER, num_worlds=1)
    np.testing.assert_array_equal(env.reset(seed=3)[0], pool.reset(seed=3)[0][0])
    assert length_of(env) == pool.spec.episode_length
    worlds = gymnasium.make_vec("sbtrpo:Task-v0", num_envs=2, task=str(COURIER))
    assert worlds.reset(seed=3)[0].shape == (2, pool.task.observation_size)
    assert pool.spec.id not in sbtrpo.task_ids()


@pytest.mark.usefixtures("_forgotten")
def test_a_task_that_is_registered_is_made_by_its_id() -> None:
    name = register(COURIER)
    assert name in sbtrpo.task_ids()
    env = gymnasium.make(f"sbtrpo:{name}")
    np.testing.assert_array_equal(env.reset(seed=3)[0], gymnasium.make("sbtrpo:Task-v0", task=COURIER).reset(seed=3)[0])
    assert length_of(env) == get_spec(name).episode_length
    with pytest.raises(ValueError, match="already registered"):
        register(COURIER)


def test_an_episode_is_the_pools() -> None:
    env, pool = make(GOAL), sbtrpo.make_pool(GOAL, num_worlds=1)
    rng = np.random.default_rng(0)
    for seed in (4, None, 5):  # the second goes on in the stream of the first
        np.testing.assert_array_equal(env.reset(seed=seed)[0], pool.reset(seed=seed)[0][0])
        for _ in range(20):
            action = rng.uniform(-1, 1, (1, 2))
            obs, reward, terminated, truncated, info = env.step(action[0])
            expected = pool.step(action)
            np.testing.assert_array_equal(obs, expected[0][0])
            assert (reward, info["cost"], terminated, truncated) == tuple(part[0] for part in expected[1:5])
            for name in (*pool.task.cost_names, "goal_met", "fault"):
                assert info[name] == expected[5][name][0]


def test_unseeded_environments_differ() -> None:
    assert not np.array_equal(make(GOAL).reset()[0], make(GOAL).reset()[0])


def test_time_limits_are_gymnasiums() -> None:
    def length(env: Any) -> int:
        env.reset(seed=0)
        return next(k for k in range(1, 2000) if any(env.step(np.zeros(2))[2:4]))

    assert make(GOAL).spec.max_episode_steps == get_spec(GOAL).episode_length == 1000
    circle = "SafetyCarCircle2-v0"
    assert [length(make(circle)), length(make(circle, max_episode_steps=7))] == [500, 7]
    assert length(make(circle, max_episode_steps=600)) == 600  # longer than the task's own


def fall(env: Any) -> tuple[Any, ...]:
    """Step a hopper until it falls."""
    while True:
        result: tuple[Any, ...] = env.step(np.ones(3))
        if result[2]:
            return result


def test_an_end_shows_the_true_last_observation_and_loses_no_episode() -> None:
    env, pool = SafetyEnv(HOPPER), sbtrpo.make_pool(HOPPER, num_worlds=1)
    env.reset(seed=1), pool.reset(seed=1)
    obs, _, _, truncated, info = fall(env)
    while True:
        following, _, _, _, _, theirs = pool.step(np.ones((1, 3)))
        if "final_obs" in theirs:
            break
    assert not truncated
    assert "episode" not in info  # a name that Gymnasium's wrappers claim
    np.testing.assert_array_equal(obs, theirs["final_obs"][0])
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.ones(3))
    np.testing.assert_array_equal(env.reset()[0], following[0])
    fall(env)
    np.testing.assert_array_equal(env.reset(seed=1)[0], sbtrpo.make_pool(HOPPER, 1, seed=1).reset()[0][0])


def test_lidars_are_bounded_and_sensors_are_not() -> None:
    env = make(GOAL)
    low, high = env.observation_space.low, env.observation_space.high
    assert np.isinf(low[:12]).all()
    assert np.isinf(high[:12]).all()
    assert (low[12:] == 0).all()
    assert (high[12:] == 1).all()
    obs, _ = env.reset(seed=0)
    for _ in range(50):
        assert env.observation_space.contains(obs)
        obs = env.step(env.action_space.sample())[0]


def test_six_values_are_the_five_and_the_cost() -> None:
    five, six = make(GOAL), SixValues(make(GOAL))
    five.reset(seed=3), six.reset(seed=3)
    for _ in range(100):
        obs, reward, terminated, truncated, info = five.step(np.array([1.0, 0.3]))
        theirs = six.step(np.array([1.0, 0.3]))
        np.testing.assert_array_equal(theirs[0], obs)
        assert theirs[1:] == (reward, info["cost"], terminated, truncated, info)


def test_pictures_are_the_renderers_business(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Renderer:
        def __init__(self, pool: Any, width: int, height: int, window: bool) -> None:
            calls.append((pool.num_worlds, width, height, window))

        def frame(self, world: int, violated: list[str]) -> Any:
            calls.append(violated)
            return np.zeros((48, 64, 3), np.uint8)

        def show(self, world: int, violated: list[str]) -> bool:
            calls.append("shown")
            return True

        def close(self) -> None:
            calls.append("closed")

    module = ModuleType("sbtrpo.envs.view.render")
    module.Renderer = Renderer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sbtrpo.envs.view.render", module)

    env = SafetyEnv(GOAL, render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    frame = env.render()
    assert frame is not None
    assert frame.shape == (48, 64, 3)
    violated = next(info for info in (env.step(np.ones(2))[4] for _ in range(1000)) if info["cost"])
    env.render()
    env.close(), env.close()
    assert calls == [(1, 64, 48, False), [], [k for k in violated if k.startswith("cost_") and violated[k]], "closed"]

    calls.clear()
    env = SafetyEnv(GOAL, render_mode="human")
    env.reset(seed=0)
    env.step(np.ones(2))
    assert calls == [(1, 480, 480, True), "shown", "shown"]
    assert SafetyEnv(GOAL).render() is None
    with pytest.raises(ValueError, match="render_mode must be"):
        SafetyEnv(GOAL, render_mode="ansi")


# ---- many worlds -----------------------------------------------------------------------------------------------------


def vector(task: str, num_envs: int = 3, **settings: Any) -> Any:
    return gymnasium.make_vec(f"sbtrpo:{task}", num_envs=num_envs, **settings)


def test_make_vec_reaches_the_pool() -> None:
    envs, pool = vector(GOAL), sbtrpo.make_pool(GOAL, num_worlds=3)
    assert isinstance(envs.unwrapped, SafetyVectorEnv)
    assert envs.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    assert (envs.observation_space.shape, envs.action_space.shape) == ((3, 60), (3, 2))
    envs.action_space.seed(0)
    np.testing.assert_array_equal(envs.reset(seed=2)[0], pool.reset(seed=2)[0])
    for _ in range(20):
        action = envs.action_space.sample()
        obs, reward, terminated, truncated, info = envs.step(action)
        expected = pool.step(action)
        for ours, theirs in zip((obs, reward, info["cost"], terminated, truncated), expected, strict=False):
            np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(vector(GOAL).reset()[0], vector(GOAL).reset()[0])


def test_ends_are_told_as_gymnasium_tells_them() -> None:
    envs, pool = vector(HOPPER, max_episode_steps=25), sbtrpo.make_pool(HOPPER, num_worlds=3)
    envs.reset(seed=0), pool.reset(seed=0)
    ends = 0
    for step in range(1, 26):
        _, _, terminated, truncated, info = envs.step(np.ones((3, 3)))
        assert info["_cost"].all()
        if step < 25:
            assert not truncated.any()
        theirs = pool.step(np.ones((3, 3)))[5]
        if (terminated | truncated).any():
            np.testing.assert_array_equal(info["_final_obs"], terminated | truncated)
            for world in np.flatnonzero(info["_final_obs"]):
                ends += 1
                if terminated[world]:
                    np.testing.assert_array_equal(info["final_obs"][world], theirs["final_obs"][world])
                    for name in ("return", "cost", "length"):
                        assert info["final_info"]["episode"][name][world] == theirs["episode"][name][world]
        else:
            assert "final_obs" not in info
    assert ends >= 3


def test_gymnasiums_vector_wrappers_fit() -> None:
    counted = RecordEpisodeStatistics(vector(HOPPER, max_episode_steps=30))
    listed = DictInfoToList(vector(HOPPER, max_episode_steps=30))
    counted.reset(seed=0), listed.reset(seed=0)
    ends = 0
    for _ in range(40):
        info, infos = counted.step(np.ones((3, 3)))[4], listed.step(np.ones((3, 3)))[4]
        for world, one in enumerate(infos):
            assert one["cost"] == info["cost"][world]
            if "final_info" in one:
                ends += 1
                assert one["final_info"]["episode"]["length"] == info["episode"]["l"][world]
                np.testing.assert_allclose(one["final_info"]["episode"]["return"], info["episode"]["r"][world])
    assert ends >= 3


# ---- a peer ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the peer's making
def test_stable_baselines3_trains_on_the_standard_form() -> None:
    spec = importlib.util.spec_from_file_location("stable_baselines3_ppo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.train(steps=40_000, seed=0)
    before, _ = example.evaluate(example.untrained(seed=0), episodes=10)
    after, cost = example.evaluate(model, episodes=10)
    assert after > before + 1  # 40,000 steps teach it to drive to goals, and nothing about costs
    assert cost > 0
