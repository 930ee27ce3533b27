"""Foreign environments: a pool like any other, whatever happens to its worlds."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import sbtrpo
from sbtrpo.envs.foreign import pool as adapters
from sbtrpo.envs.foreign.costs import CostReader
from sbtrpo.envs.foreign.environment import UnfitEnvironment
from sbtrpo.envs.foreign.pool import EnvironmentFailure, EnvPool, episode_seed, make_env_pool
from sbtrpo.envs.foreign.workers import Fault, Host
from sbtrpo.envs.foreign.world import World
from sbtrpo.learning.trainer import Trainer
from tests.envs.foreign.worlds import LENGTH, name_of
from tests.processes import alive

ROOT = Path(__file__).parents[3]
WALK = name_of("walk")
PLAIN = CostReader("number", ())


@contextlib.contextmanager
def pool_of(task: str, num_worlds: int = 4, **settings: Any) -> Iterator[EnvPool]:
    pool = make_env_pool(task, num_worlds, **{"threads": 2, **settings})
    try:
        yield pool
    finally:
        pool.close()


def actions(steps: int, worlds: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 4, (steps, worlds, 1))


def play(pool: EnvPool, steps: Any) -> list[tuple[Any, ...]]:
    return [pool.step(action) for action in steps]


def first_obs(seed: int, world: int, episode: int) -> Any:
    """What an episode of a walk begins with."""
    return World(WALK).reset(episode_seed(seed, world, episode))


def healthy(seed: int, steps: Any) -> list[Any]:
    """Observations, (N, 2), after each step of the first episodes, in this process."""
    host = Host(WALK, steps.shape[1])
    host.reset({k: episode_seed(seed, k, 0) for k in range(steps.shape[1])})
    return [np.stack(list(host.step(action, PLAIN)[0].values()))[:, -2:] for action in steps]


# ---- a pool like any other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [WALK, name_of("six walk")])
def test_worlds_do_what_the_environment_does_by_itself(task: str) -> None:
    steps = actions(20, 3)
    with pool_of(task, 3, seed=5) as pool:
        first, _ = pool.reset()
        given = play(pool, steps)
    for world in range(3):
        env, episode = gymnasium.make(WALK), 0
        obs, _ = env.reset(seed=episode_seed(5, world, episode))
        np.testing.assert_array_equal(first[world], obs)
        sums = np.zeros(4)
        for action, (after, reward, cost, terminated, truncated, info) in zip(steps, given, strict=True):
            obs, gain, done, cut, theirs = env.step(action[world].astype(np.float32))
            assert (reward[world], cost[world], info["cost_high"][world]) == (gain, theirs["cost"], theirs["cost_high"])
            assert (terminated[world], truncated[world]) == (done, cut)
            assert info["goal_met"][world] == theirs["goal_met"]
            sums += gain, theirs["cost"], theirs["goal_met"], 1
            if done or cut:
                assert info["_episode"][world]
                np.testing.assert_array_equal(info["final_obs"][world], obs)
                names = ("return", "cost", "goals", "length")
                np.testing.assert_allclose([info["episode"][name][world] for name in names], sums)
                episode, sums = episode + 1, np.zeros(4)
                obs, _ = env.reset(seed=episode_seed(5, world, episode))
            np.testing.assert_array_equal(after[world], obs)
        assert episode >= 2


def test_an_episode_may_end_with_its_first_violation() -> None:
    steps = np.ones((40, 4, 1))
    with pool_of(WALK, seed=5, end_at_violation=True) as pool:
        pool.reset()
        given = play(pool, steps)
    costs, ends = (np.stack([result[k] for result in given]) for k in (2, 3))
    np.testing.assert_array_equal(ends, costs > 0)
    assert ends.any(axis=0).all()
    lengths = np.concatenate([info["episode"]["length"][info["_episode"]] for *_, info in given if "episode" in info])
    assert (lengths < LENGTH).any()


def test_it_has_the_interface_of_a_pool() -> None:
    with pool_of(WALK) as pool:
        assert (pool.num_worlds, pool.spec.id, pool.spec.episode_length) == (4, WALK, LENGTH)
        assert pool.single_observation_space == spaces.Box(-100.0, 100.0, (2,), np.float64)
        assert pool.single_action_space == spaces.Box(np.array([-2.0]), np.array([4.0]), dtype=np.float64)
        assert pool.task.observation_size == 2
        assert pool.task.cost_names == ("cost_high",)  # one value a step; what is an array is no component
        with pytest.raises(RuntimeError, match="before reset"):
            pool.step(np.zeros((4, 1)))
        obs, info = pool.reset()
        assert (obs.shape, obs.dtype, info) == ((4, 2), np.float64, {})
        results = play(pool, np.zeros((LENGTH, 4, 1)))
        for part, kind in zip(results[0], (np.float64,) * 3 + (np.bool_,) * 2, strict=False):
            assert (part.dtype, len(part)) == (kind, 4)
        assert "episode" not in results[0][5]
        assert set(results[-1][5]["episode"]) == {"return", "cost", "length", "goals", "cost_high"}
        np.testing.assert_array_equal(pool.last_obs, results[-1][0])
        with pytest.raises(ValueError, match=r"shape \(4, 1\), got \(4,\)"):
            pool.step(np.zeros(4))
        with pytest.raises(ValueError, match="world 2 is not finite"):
            pool.step(np.array([[0.0], [0.0], [np.nan], [0.0]]))
        play(pool, np.full((1, 4, 1), 100.0))  # beyond the bounds: the environment would refuse it
        assert pool.faults == 0


def test_a_world_depends_on_the_seed_and_its_index_alone() -> None:
    steps = actions(4, 3)
    with pool_of(WALK, 3, seed=1, threads=1) as pool:
        pool.reset()
        pool.reset(seed=3)
        for (obs, *_), expected in zip(play(pool, steps), healthy(3, steps), strict=True):
            np.testing.assert_array_equal(obs, expected)


def test_spaces_of_all_kinds_are_flattened_and_choices_count_from_0() -> None:
    with pool_of(name_of("rooms"), 2, threads=1) as pool:
        assert pool.single_action_space == spaces.Discrete(3)
        obs, _ = pool.reset()
        np.testing.assert_array_equal(obs, [[0.25, 0.25, 0.25, 0.25, 1, 0, 1, 0, 0]] * 2)
        obs, reward, cost, terminated, _, info = pool.step(np.array([1, 2]))
        np.testing.assert_array_equal(reward, [2, 3])  # the environment's own count begins at 1
        np.testing.assert_array_equal(cost, [0.5, 0.5])
        np.testing.assert_array_equal(terminated, [False, True])
        np.testing.assert_array_equal(info["final_obs"][:, 6:], [[0, 1, 0], [0, 0, 1]])
        np.testing.assert_array_equal(obs[:, 6:], [[0, 1, 0], [1, 0, 0]])
        for wrong in (np.array([0, 3]), np.array([-1, 0]), np.array([0.0, 1.0])):
            with pytest.raises(ValueError, match="integers from 0 to 2"):
                pool.step(wrong)


def test_another_time_limit_may_be_given() -> None:
    with pool_of(name_of("endless"), 2, threads=1, episode_length=3) as pool:
        pool.reset()
        cut = [result[4].tolist() for result in play(pool, np.zeros((3, 2, 1)))]
    assert cut == [[False, False]] * 2 + [[True, True]]


def test_a_restored_pool_begins_the_episodes_that_come_next() -> None:
    steps = actions(10, 2)
    with pool_of(WALK, 2, seed=2, threads=1) as pool:
        assert not pool.restores_exactly
        pool.reset()
        play(pool, steps)
        pool.faults = 7
        state = pool.state_dict()
    with pool_of(WALK, 2, seed=9, threads=1) as restored:
        runs = []
        for _ in range(2):  # as often as one likes
            restored.load_state_dict(state)
            expected = [first_obs(2, world, state["episodes"][world]) for world in range(2)]
            np.testing.assert_array_equal(restored.last_obs, expected)
            assert restored.faults == 7
            runs.append(play(restored, steps))
        for ours, theirs in zip(*runs, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])
        assert max(result[5]["episode"]["length"].max() for result in runs[0] if "episode" in result[5]) == LENGTH
        with pytest.raises(ValueError, match="num_worlds of the saved one"):
            restored.load_state_dict(state | {"episodes": np.zeros(3, np.int64)})


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def seed_with(episodes: list[bool], among: int = 2) -> int:
    """A seed with which the first episodes of the worlds are chosen for trouble, or not."""
    return next(
        s for s in range(10**5) if [episode_seed(s, w, 0) % among == 0 for w in range(len(episodes))] == episodes
    )


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [("raise", "ZeroDivisionError: as promised")]
    + [(trouble, "was not finite") for trouble in ("nan", "infinite", "infinite cost", "huge")],
)
def test_a_world_that_fails_is_isolated(trouble: str, reason: str) -> None:
    seed = seed_with([False, True, False, False])
    steps = np.zeros((4, 4, 1))
    expected = healthy(seed, steps)
    with pool_of(name_of(trouble), seed=seed, threads=1) as pool:
        pool.reset()
        play(pool, steps[:2])
        last = pool.last_obs
        with pytest.warns(RuntimeWarning, match=reason):
            obs, reward, cost, terminated, truncated, info = pool.step(steps[2])
        others = [0, 2, 3]
        np.testing.assert_array_equal(info["fault"], [False, True, False, False])
        np.testing.assert_array_equal(truncated, info["fault"])
        assert reward[1] == cost[1] == 0.0
        assert not terminated[1]
        assert pool.faults == 1
        assert reason in pool.last_error
        np.testing.assert_array_equal(info["final_obs"][1], last[1])
        assert info["episode"]["length"][1] == 3
        np.testing.assert_array_equal(obs[1], first_obs(seed, 1, 1))
        np.testing.assert_array_equal(obs[others], expected[2][others])
        np.testing.assert_array_equal(pool.step(steps[3])[0][others], expected[3][others])


def test_a_process_that_dies_is_replaced_and_the_others_do_not_notice() -> None:
    seed = seed_with([False, True, False, False])
    steps = np.zeros((4, 4, 1))
    expected = healthy(seed, steps)
    with pool_of(name_of("die"), seed=seed) as pool:
        pool.reset()
        play(pool, steps[:2])
        with pytest.warns(RuntimeWarning, match="its process died"):
            obs, _, _, _, truncated, info = pool.step(steps[2])
        np.testing.assert_array_equal(truncated, [True, True, False, False])  # world 0 lived in the same process
        np.testing.assert_array_equal(info["fault"], truncated)
        assert pool.faults == 2
        np.testing.assert_array_equal(obs[0], first_obs(seed, 0, 1))
        np.testing.assert_array_equal(obs[2:], expected[2][2:])
        obs, _, _, _, truncated, _ = pool.step(steps[3])
        np.testing.assert_array_equal(obs[2:], expected[3][2:])
        assert not truncated.any()


def test_a_process_that_dies_in_a_reset_takes_its_running_episodes_along() -> None:
    deadly = [(1, 1)]  # the second episode of world 1
    seed = next(
        seed
        for seed in range(10**5)
        if [(w, e) for w in range(2) for e in range(3) if episode_seed(seed, w, e) % 4 == 0] == deadly
    )
    with pool_of(name_of("die in reset"), 2, seed=seed, threads=1) as pool:
        pool.reset()
        pool.step(np.zeros((2, 1)))
        pool._steps[1] = LENGTH - 1  # so that world 1 alone comes to the end
        with pytest.warns(RuntimeWarning, match="its process died"):
            obs, reward, _, _, truncated, info = pool.step(np.zeros((2, 1)))
        np.testing.assert_array_equal(truncated, [True, True])
        np.testing.assert_array_equal(info["fault"], [True, False])
        np.testing.assert_array_equal(info["episode"]["length"], [2, LENGTH])
        assert reward[0] != 0  # the step itself was good
        np.testing.assert_array_equal(obs, [first_obs(seed, 0, 1), first_obs(seed, 1, 2)])


def test_a_reset_that_raises_is_tried_with_the_next_seed() -> None:
    seed = seed_with([False, True])
    with pool_of(name_of("reset"), 2, seed=seed, threads=1) as pool:
        with pytest.warns(RuntimeWarning, match="OSError: no licence"):
            obs, _ = pool.reset()
        begun = int(pool._episodes[1])
        assert pool.faults == begun - 1 >= 1
        np.testing.assert_array_equal(obs, [first_obs(seed, 0, 0), first_obs(seed, 1, begun - 1)])


def test_a_world_that_never_makes_a_step_ends_the_run() -> None:
    with pool_of(WALK, 2, threads=1) as pool:
        pool.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for k in range(1, adapters.GIVE_UP):
                pool._count_fault(1, Fault("what it said"))
                assert pool.faults == k
            with pytest.raises(EnvironmentFailure, match="world 1 failed 5 times in a row"):
                pool._count_fault(1, Fault("what it said"))
        with pytest.raises(RuntimeError, match="closed"):
            pool.reset()


@pytest.mark.slow
def test_a_world_that_hangs_is_replaced() -> None:
    seed = seed_with([True, False, False, False])
    with pool_of(name_of("hang"), seed=seed, timeout=15.0) as pool:  # a new process needs some seconds to answer
        pool.reset()
        play(pool, np.zeros((2, 4, 1)))
        with pytest.warns(RuntimeWarning, match="did not answer"):
            truncated = pool.step(np.zeros((4, 1)))[4]
        np.testing.assert_array_equal(truncated, [True, True, False, False])


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("no cost", r'put info\["cost"\] into every step'),
        ("four", r"step returned 4 values; it must return \(obs, reward, terminated"),
        ("bare reset", r"reset must take a seed and return \(obs, info\)"),
        ("unbounded", "infinite bounds; give it the range"),
        ("several", r"MultiDiscrete\(\[40 40\]\) are 1,600 combinations, and 1,024 are the most"),
        ("of any length", "no vector of fixed size"),
        ("words", "no vector of fixed size"),
        ("constructor", "its constructor raised KeyError: 'no such map'"),
        ("always", "fails in its first step: ZeroDivisionError: as promised"),
        ("unknown", "does not register 'Unknown-v0' with Gymnasium"),
    ],
)
def test_what_an_environment_must_change_is_said(what: str, sentence: str) -> None:
    with pytest.raises(UnfitEnvironment, match=sentence):
        World(name_of(what)).describe(0)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("negative", "a step cost -1; costs must be >= 0"),
        ("shape", "an observation has 1 entries but the observation space 2"),
        ("text cost", "cost must be a number, got 'much'"),
    ],
)
def test_rules_hold_in_every_step(what: str, sentence: str) -> None:
    host = Host(name_of(what), 1)
    host.reset({0: 1})
    with contextlib.suppress(UnfitEnvironment):
        host.step(np.zeros((1, 1)), PLAIN)
    with pytest.raises(UnfitEnvironment, match=sentence):
        host.step(np.zeros((1, 1)), PLAIN)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import no_such_module_here", "No module named 'no_such_module_here'; it must be installed"),
        ("def f(:", "`import fails_on_import` raised SyntaxError"),
        ("raise RuntimeError('no licence')", "`import fails_on_import` raised RuntimeError: no licence"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_from_an_environment_that_cannot_be_made(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_on_import.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnfitEnvironment, match=f"fails_on_import:Env-v0 cannot be made: {sentence}"):
        World("fails_on_import:Env-v0")


@pytest.mark.parametrize("task", ["a:b:c", ":Env-v0", "module:", "__main__:Env-v0", "no_such_module_here:Env-v0"])
def test_a_name_that_cannot_be_meant_is_refused(task: str) -> None:
    with pytest.raises(UnfitEnvironment, match=re.escape(task)):
        World(task)


def test_an_unfit_environment_leaves_no_process_behind() -> None:
    with pytest.raises(UnfitEnvironment, match="no time limit; register it with max_episode_steps"):
        make_env_pool(name_of("endless"), 1)
    with pool_of(name_of("negative"), 2, threads=1) as pool:
        pool.reset()
        pids = [worker._process.pid for worker in pool._workers]
        with pytest.raises(UnfitEnvironment, match="costs must be >= 0"):
            play(pool, np.zeros((3, 2, 1)))
        assert not any(alive(pid) for pid in pids)


# ---- processes -------------------------------------------------------------------------------------------------------


def test_an_interrupt_from_the_keyboard_is_the_trainers() -> None:
    with pool_of(WALK, 2, threads=1) as pool:
        pool.reset()
        os.kill(pool._workers[0]._process.pid, signal.SIGINT)
        pool.step(np.zeros((2, 1)))
        assert pool.faults == 0


def test_a_pool_that_is_no_longer_used_ends_its_processes() -> None:
    pool = make_env_pool(WALK, 1)
    pids = [worker._process.pid for worker in pool._workers]
    assert all(alive(pid) for pid in pids)
    del pool
    assert not any(alive(pid) for pid in pids)


SCRIPT = f"""
print("begun", flush=True)
import numpy as np
from sbtrpo.envs.foreign.pool import make_env_pool
pool = make_env_pool({WALK!r}, 2, threads=1)
pool.reset()
pool.step(np.zeros((2, 1)))
print(*(worker._process.pid for worker in pool._workers), flush=True)
"""


def script(more: str = "") -> subprocess.Popen[str]:
    """A script as people write them, without a guard for `__main__`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    process.stdin.write(SCRIPT + more)
    process.stdin.close()
    return process


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count("begun") == 1
    assert not done.stderr
    assert not any(alive(int(pid)) for pid in done.stdout.split()[1:])


def test_workers_of_a_killed_run_end_by_themselves() -> None:
    process = script("while True: pool.step(np.zeros((2, 1)))")
    assert process.stdout is not None
    process.stdout.readline()
    pids = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    # Workers hold the other end of standard output: it closes when the last of them is gone.
    assert process.stdout.read() == ""
    process.stdout.close()
    process.wait()
    assert len(pids) == 1


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


@pytest.mark.usefixtures("_examples")
def test_a_resumed_run_begins_new_episodes_and_is_deterministic() -> None:
    config = sbtrpo.TrainConfig(
        task="own_environment:LavaGrid-v0", num_envs=2, threads=1, steps_per_epoch=500, total_steps=1000
    )
    first = Trainer(config)
    first.run_epoch()
    state = first.state_dict()
    rows = []
    for _ in range(2):
        resumed = Trainer(config)
        resumed.load_state_dict(state)
        collector = resumed.collector
        assert (collector._age == 0).all()
        np.testing.assert_array_equal(
            collector._obs, resumed.policy.normaliser(collector.pool.last_obs).astype(np.float32)
        )
        rows.append(resumed.run_epoch().row)
    np.testing.assert_equal(rows[0], rows[1])
    assert rows[0]["epoch"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("_examples")
def test_a_choice_among_four_is_learnt_without_touching_lava(tmp_path: Path) -> None:
    config = sbtrpo.TrainConfig(
        task="own_environment:LavaGrid-v0", steps_per_epoch=4000, total_steps=120_000, advantage="mc-linear"
    )
    found = sbtrpo.evaluate(sbtrpo.train(config, out=tmp_path / "run", quiet=True), episodes=100)
    assert found.reward > 0.6  # the bridge is up to 12 steps away, each of which takes 0.02 from 1
    assert found.safety_probability > 0.9
