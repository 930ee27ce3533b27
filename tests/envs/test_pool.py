"""What a pool promises: shapes, autoreset, reproducibility, exact snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbtrpo
from sbtrpo.envs.registry import PAPER_TASKS

TASKS = PAPER_TASKS
TOY = "ToyCorridor-v0"
SIZES = {
    "SafetyPointGoal2-v0": (60, 2),
    "SafetyPointPush2-v0": (76, 2),
    "SafetyPointButton2-v0": (76, 2),
    "SafetyCarGoal2-v0": (72, 2),
    "SafetyCarPush2-v0": (88, 2),
    "SafetyCarCircle2-v0": (40, 2),
    "SafetyHopperVelocity-v1": (11, 3),
    "SafetySwimmerVelocity-v1": (8, 2),
}


def actions(pool: sbtrpo.Pool, steps: int, seed: int = 0) -> Any:
    """Uniform random actions, (steps, N, action_dim), the same for world i whatever N is."""
    shape = (steps, *pool.single_action_space.shape)
    draws = [np.random.default_rng([seed, world]).uniform(-1, 1, shape) for world in range(pool.num_worlds)]
    return np.stack(draws, axis=1)


def trace(pool: sbtrpo.Pool, steps: Any) -> Any:
    """Everything that steps return, per world: (T, N, obs_dim + 4)."""
    rows = []
    for action in steps:
        obs, reward, cost, terminated, truncated, _ = pool.step(action)
        rows.append(np.column_stack([obs, reward, cost, terminated, truncated]))
    return np.stack(rows)


@pytest.mark.parametrize("task", TASKS)
def test_shapes_and_spaces(task: str) -> None:
    pool = sbtrpo.make_pool(task, num_worlds=3)
    obs, info = pool.reset()
    size, act = SIZES[task]
    assert obs.shape == (3, size)
    assert obs.dtype == np.float64
    assert info == {}
    assert pool.single_observation_space.shape == (size,)
    assert pool.single_action_space.shape == (act,)
    obs, reward, cost, terminated, truncated, info = pool.step(np.zeros((3, act), np.float32))
    assert obs.shape == (3, size)
    assert np.isfinite(obs).all()
    assert reward.shape == cost.shape == terminated.shape == truncated.shape == (3,)
    assert terminated.dtype == truncated.dtype == bool
    assert {name for name in info if name.startswith("cost_")} == set(pool.task.cost_names)
    ends = [part.stop for part in pool.task.observation_slices.values()]
    assert ends[-1] == size
    assert ends == sorted(ends)


@pytest.mark.parametrize("task", TASKS)
def test_one_seed_gives_one_trajectory_whatever_the_number_of_worlds_and_threads(task: str) -> None:
    few = sbtrpo.make_pool(task, num_worlds=3, seed=11, threads=1)
    many = sbtrpo.make_pool(task, num_worlds=7, seed=11, threads=2)
    np.testing.assert_array_equal(few.reset()[0], many.reset()[0][:3])
    steps = actions(many, 40)
    np.testing.assert_array_equal(trace(few, steps[:, :3]), trace(many, steps)[:, :3])


def test_worlds_and_seeds_differ_from_each_other() -> None:
    obs = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=4, seed=0).reset()[0]
    other = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=4, seed=1).reset()[0]
    rows = np.concatenate([obs, other])
    assert len(np.unique(rows.round(9), axis=0)) == 8


def test_reset_with_a_seed_starts_over_and_without_goes_on() -> None:
    pool = sbtrpo.make_pool("SafetyPointPush2-v0", num_worlds=3, seed=4)
    first = pool.reset()[0]
    second = pool.reset()[0]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(pool.reset(seed=4)[0], first)
    np.testing.assert_array_equal(pool.reset()[0], second)
    assert not np.array_equal(pool.reset(seed=5)[0], first)


def test_an_episode_ends_and_the_next_begins_in_the_same_step() -> None:
    pool = sbtrpo.make_pool("SafetyCarCircle2-v0", num_worlds=3, seed=0)
    pool.reset()
    rng = np.random.default_rng(0)
    total_return, total_cost = np.zeros(3), np.zeros(3)
    for k in range(500):
        obs, reward, cost, terminated, truncated, info = pool.step(rng.uniform(-1, 1, (3, 2)))
        total_return += reward
        total_cost += cost
        assert not terminated.any()
        assert truncated.all() == (k == 499)
        assert ("final_obs" in info) == ("episode" in info) == (k == 499)
    episode = info["episode"]
    np.testing.assert_allclose(episode["return"], total_return, rtol=1e-12)
    np.testing.assert_array_equal(episode["cost"], total_cost)
    np.testing.assert_array_equal(episode["cost_out_of_boundary"], total_cost)
    np.testing.assert_array_equal(episode["length"], [500, 500, 500])
    assert info["_episode"].all()
    assert info["_final_obs"].all()
    # The final observation is of a car under way, the returned one of a car at rest.
    speed = pool.task.observation_slices["velocimeter"]
    assert (np.abs(info["final_obs"][:, speed]).max(axis=1) > 1e-3).all()
    assert np.abs(obs[:, speed]).max() < 1e-9
    _, _, _, _, truncated, info = pool.step(np.zeros((3, 2)))
    assert not truncated.any()
    assert "final_obs" not in info


def test_worlds_that_end_apart_are_reported_apart() -> None:
    pool = sbtrpo.make_pool("SafetyHopperVelocity-v1", num_worlds=8, seed=0)
    obs, _ = pool.reset()
    steps = actions(pool, 60)
    lengths = np.zeros(8)
    ended_alone = 0
    for action in steps:
        obs, _, _, terminated, truncated, info = pool.step(action)
        lengths += 1
        assert not truncated.any()
        if terminated.any():
            np.testing.assert_array_equal(info["_episode"], terminated)
            np.testing.assert_array_equal(info["episode"]["length"], np.where(terminated, lengths, 0))
            lengths[terminated] = 0
            ended_alone += int(terminated.sum() < 8)
            # Fallen when it ended, upright again in the observation to go on from.
            fallen = (info["final_obs"][:, 0] <= 0.7) | (np.abs(info["final_obs"][:, 1]) >= 0.2)
            np.testing.assert_array_equal(fallen, terminated)
            assert (np.abs(obs[terminated, 0] - 1.25) <= 0.005).all()
    assert ended_alone > 0


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyHopperVelocity-v1", TOY])
def test_an_episode_may_end_with_its_first_violation(task: str) -> None:
    ending, usual = (sbtrpo.make_pool(task, num_worlds=6, seed=0, end_at_violation=end) for end in (True, False))
    for pool in (ending, usual):
        pool.reset()
    untouched, violations = np.ones(6, bool), 0
    for action in actions(usual, 700, seed=1):
        action[:, 0] = 1.0
        _, reward, cost, terminated, truncated, info = ending.step(action)
        expected = usual.step(action)
        for ours, theirs in zip((reward, cost), expected[1:3], strict=True):
            np.testing.assert_array_equal(ours[untouched], theirs[untouched])  # up to there it is the same episode
        np.testing.assert_array_equal(terminated[untouched], (expected[3] | (expected[2] > 0))[untouched])
        assert (terminated >= (cost > 0)).all()
        assert not (terminated & truncated & (cost == 0)).any()
        if "episode" in info:
            ended = info["_episode"]
            np.testing.assert_array_equal(ended, terminated | truncated)
            np.testing.assert_array_equal(info["episode"]["cost"][ended], cost[ended])
            violations += int((cost[ended] > 0).sum())
        untouched &= ~(terminated | truncated)
    assert violations > 1


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyPointButton2-v0", "SafetyHopperVelocity-v1"])
def test_returned_arrays_belong_to_the_caller(task: str) -> None:
    """Those in `info` too, also in steps that end an episode."""

    def arrays(results: Any) -> list[Any]:
        info = dict(results[5])
        return [*results[:5], *info.pop("episode", {}).values(), *info.values()]

    pool, twin = (sbtrpo.make_pool(task, num_worlds=2, seed=3) for _ in range(2))
    twin.reset()
    pool.reset()[0][:] = np.nan
    state = twin.state_dict()
    state["steps"][1] = twin.spec.episode_length - 3
    pool.load_state_dict(state)
    twin.load_state_dict(state)
    for action in actions(pool, 5):
        results = pool.step(action)
        expected = twin.step(action)
        for ours, theirs in zip(arrays(results), arrays(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours in arrays(results):
            ours[:] = 1
        action[:] = np.nan
    np.testing.assert_array_equal(pool.last_obs, twin.last_obs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("layout_rng", ["fast", "original"])
def test_a_restored_pool_continues_bit_for_bit(task: str, layout_rng: Any) -> None:
    """Through the ends of episodes, at another thread count, and with bodies asleep when the snapshot is taken."""
    pool = sbtrpo.make_pool(task, num_worlds=4, seed=9, threads=2, layout_rng=layout_rng)
    pool.reset()
    steps = actions(pool, 90)
    trace(pool, steps[:60])
    state = pool.state_dict()
    state["steps"][1:3] = pool.spec.episode_length - 10  # two worlds near their end
    restored = sbtrpo.make_pool(task, num_worlds=4, seed=0, threads=1, layout_rng=layout_rng)
    pool.load_state_dict(state)
    restored.load_state_dict(state)
    np.testing.assert_array_equal(pool.last_obs, restored.last_obs)
    after = trace(pool, steps[60:])
    np.testing.assert_array_equal(after, trace(restored, steps[60:]))
    assert after[:, 1:3, -1].any()  # truncations happened


def anybody_sleeps(pool: sbtrpo.Pool) -> bool:
    physics: Any = pool.physics
    return bool((physics.batch.bind("tree_asleep") >= 0).any())


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyPointButton2-v0", "SafetyCarPush2-v0"])
def test_waking_and_going_on_equals_restoring(task: str) -> None:
    pool = sbtrpo.make_pool(task, num_worlds=4, seed=2)
    pool.reset()
    steps = actions(pool, 80)
    trace(pool, steps[:50])
    asleep, state = anybody_sleeps(pool), pool.state_dict()
    assert asleep or "Button" in task  # gremlins never rest
    pool.wake()
    assert not anybody_sleeps(pool)
    assert_alike(pool.state_dict(), state)
    restored = sbtrpo.make_pool(task, num_worlds=4, seed=77)
    restored.load_state_dict(state)
    np.testing.assert_array_equal(trace(pool, steps[50:]), trace(restored, steps[50:]))


@pytest.mark.parametrize(
    "task", ["SafetyPointGoal2-v0", "SafetyPointPush1-v0", "SafetyCarButton1-v0", "SafetyAntVelocity-v1", TOY]
)
@settings(max_examples=5, deadline=None)
@given(moments=st.sets(st.integers(0, 59), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_taking_a_state_changes_nothing(task: str, moments: set[int], seed: int) -> None:
    """At any moments, asleep or not, beside a twin that nobody looks at."""
    watched, twin = (sbtrpo.make_pool(task, num_worlds=3, seed=seed) for _ in range(2))
    for pool in (watched, twin):
        pool.reset()
    for k, action in enumerate(actions(watched, 60, seed)):
        if k in moments:
            assert_alike(watched.state_dict(), watched.state_dict())
        np.testing.assert_array_equal(trace(watched, [action]), trace(twin, [action]))
    assert_alike(watched.state_dict(), twin.state_dict())


def test_a_state_taken_while_bodies_sleep_is_restored_awake() -> None:
    """What it holds is restored to the bit; who sleeps is not, so that the next steps agree but for rounding."""
    task = "SafetyPointGoal2-v0"
    pool, restored = (sbtrpo.make_pool(task, num_worlds=4, seed=seed) for seed in (2, 77))
    pool.reset()
    steps = actions(pool, 51)
    trace(pool, steps[:50])
    assert anybody_sleeps(pool)
    restored.load_state_dict(pool.state_dict())
    assert_alike(restored.state_dict(), pool.state_dict())
    assert not anybody_sleeps(restored)
    np.testing.assert_allclose(trace(pool, steps[50:]), trace(restored, steps[50:]), atol=1e-4)


def test_only_the_worlds_named_are_woken() -> None:
    pool = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=4, seed=2)
    pool.reset()
    trace(pool, actions(pool, 50))
    physics: Any = pool.physics
    asleep = (physics.batch.bind("tree_asleep") >= 0).any(axis=1)
    assert asleep.all()
    pool.wake(np.array([1, 2]))
    np.testing.assert_array_equal((physics.batch.bind("tree_asleep") >= 0).any(axis=1), [True, False, False, True])


def flat(part: Any, path: str = "") -> dict[str, Any]:
    """A state's arrays, by their paths."""
    if not isinstance(part, dict):
        return {path: np.array(part)}
    return {k: v for name in part for k, v in flat(part[name], f"{path}/{name}").items()}


def assert_alike(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    a, b = flat(ours), flat(theirs)
    assert list(a) == list(b)
    for path in a:
        np.testing.assert_array_equal(a[path], b[path], err_msg=path)


def test_a_snapshot_is_not_changed_by_going_on() -> None:
    pool = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=2)
    pool.reset()
    state = pool.state_dict()
    before = flat(state)
    assert all(values.dtype != object for values in before.values())
    trace(pool, actions(pool, 5))
    for path, values in flat(state).items():
        np.testing.assert_array_equal(values, before[path], err_msg=path)


def test_a_state_of_another_pool_is_refused() -> None:
    pool = sbtrpo.make_pool("SafetyPointPush2-v0", num_worlds=2)
    pool.reset()
    for other in (
        sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=3),
        sbtrpo.make_pool("SafetyPointButton2-v0", num_worlds=2),  # whose observation is as long
        sbtrpo.make_pool("SafetyPointPush2-v0", num_worlds=2, layout_rng="original"),
    ):
        before = other.reset()[0]
        with pytest.raises(ValueError, match="the task, layout_rng and num_worlds of the saved one"):
            other.load_state_dict(pool.state_dict())
        np.testing.assert_array_equal(other.last_obs, before)


def test_seeds_may_be_large_or_of_numpy() -> None:
    def first(seed: Any, layout_rng: Any = "fast") -> Any:
        return sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=2, seed=seed, layout_rng=layout_rng).reset()[0]

    assert not np.array_equal(first(2**40), first(2**40 + 1))
    for layout_rng in ("fast", "original"):
        np.testing.assert_array_equal(first(np.uint64(5), layout_rng), first(5, layout_rng))
        np.testing.assert_array_equal(first(np.int32(5), layout_rng), first(5, layout_rng))


def test_nothing_is_compiled_at_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    import mujoco

    pool = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=2)

    def refuse(*args: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr(mujoco.MjSpec, "compile", refuse)
    pool.reset()
    pool.reset(seed=3)
    with pytest.raises(AssertionError, match="compiled"):
        sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=2)
