"""A world on a device is its own, and its state goes to the other engine and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.envs.registry import get_spec
from tests.envs.test_memory import task_of
from tests.gpu.engines import DEVICE, ENGINE, HOPPER, LIGHT, numbers, pool_of, tensor

STANDING = [pytest.param(f"Safety{name}2-v0", marks=pytest.mark.slow) for name in ("PointGoal", "CarPush")]
"""Tasks in which something stands on the floor."""
HEAVY = [*STANDING, pytest.param("SafetyPointButton2-v0", marks=pytest.mark.slow)]


def actions(pool: sbtrpo.Pool, steps: int, seed: int = 0) -> Any:
    shape = (steps, pool.num_worlds, *pool.single_action_space.shape)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def contacts(pool: Any) -> list[Any]:
    """Of each world: what touches what, how deep, sorted."""
    data = pool.physics.data
    count = int(data.nacon.numpy()[0])
    world, geoms, depth = (
        values.numpy()[:count] for values in (data.contact.worldid, data.contact.geom, data.contact.dist)
    )
    return [
        sorted((*geoms[i].tolist(), float(depth[i])) for i in np.flatnonzero(world == k))
        for k in range(pool.num_worlds)
    ]


@pytest.mark.parametrize("task", [LIGHT, *STANDING])
@pytest.mark.parametrize("reset", [[0], [1, 3]], ids=["the first", "others"])
def test_worlds_beside_a_reset_one_do_not_feel_it(task: str, reset: list[int]) -> None:
    """Their contacts are those of a pool without that reset, at once and in the steps after it."""
    one, other = pool_of(task, 4, 5), pool_of(task, 4, 5)
    for pool in (one, other):
        pool.reset()
    mark = torch.zeros(4, dtype=torch.bool, device=DEVICE)
    mark[reset] = True
    beside = [k for k in range(4) if k not in reset]
    before, *after = actions(one, 3)
    for pool in (one, other):
        pool.step(tensor(before))
    one.task.reset(mark)
    other.physics.forward()
    assert any(contacts(one)[k] for k in beside)
    for action in (None, *after):
        if action is not None:
            results = [pool.step(tensor(action)) for pool in (one, other)]
            for ours, theirs in zip(numbers(results[0])[:5], numbers(results[1])[:5], strict=True):
                np.testing.assert_allclose(ours[beside], theirs[beside], rtol=1e-5, atol=1e-5)
        ours, theirs = contacts(one), contacts(other)
        for k in beside:
            assert [touch[:2] for touch in ours[k]] == [touch[:2] for touch in theirs[k]]
            np.testing.assert_allclose([x[2] for x in ours[k]], [x[2] for x in theirs[k]], rtol=0, atol=1e-6)
    gone = [abs(numbers(pool.physics.qpos)[reset]) for pool in (one, other)]
    assert not np.allclose(*gone, atol=1e-3)


@pytest.mark.parametrize("task", [LIGHT, HOPPER, *HEAVY])
def test_a_state_goes_to_the_other_engine_and_back(task: str) -> None:
    """From the GPU to the CPU and back it is the same, and one step from it gives the same on both."""
    ours, again = pool_of(task, 3, 1), pool_of(task, 3, 2)
    theirs = sbtrpo.make_pool(task, 3, 3)
    for pool in (ours, theirs):
        pool.reset()
    first, *_, last = actions(ours, 4)
    for pool in (ours, theirs):
        pool.step(tensor(first) if pool is ours else first)
    ours.wake()
    state = ours.state_dict()
    theirs.load_state_dict(state)
    again.load_state_dict(theirs.state_dict())
    assert_same(again.state_dict(), state)

    results = [numbers(pool.step(tensor(last))) for pool in (ours, again)]
    expected = theirs.step(last)
    felt = ours.task.observation_slices.get("accelerometer", slice(0, 0))
    for obs, reward, cost, terminated, truncated, info in results:
        gap = np.delete(np.abs(obs - expected[0]), np.r_[felt], axis=1)
        assert np.median(gap) < 1e-5
        np.testing.assert_allclose(reward, expected[1], rtol=0, atol=1e-3)
        for mine, wanted in zip((cost, terminated, truncated, info["goal_met"]), expected[2:5], strict=False):
            np.testing.assert_array_equal(mine, wanted)
    assert_same(numbers(ours.task.state_dict()["streams"]), theirs.task.state_dict()["streams"])


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        if isinstance(values, dict):
            assert_same(ours[name], values)
        elif name != "state":
            np.testing.assert_array_equal(ours[name], values, err_msg=name)
        else:  # who feels which force is no part of a GPU's state, and comes back as the CPU engine keeps it
            np.testing.assert_allclose(ours[name], values, rtol=0, atol=0, err_msg=name)


def test_a_state_of_the_cpu_engine_continues_on_a_device_to_the_end_of_its_episodes() -> None:
    spec = replace(get_spec(HOPPER), episode_length=6)
    theirs, ours = sbtrpo.make_pool(spec, 4, 7), pool_of(spec, 4, 8)
    theirs.reset()
    steps = actions(theirs, 8, 3)
    for action in steps[:3]:
        theirs.step(action)
    ours.load_state_dict(theirs.state_dict())
    for action in steps[3:]:
        mine, expected = numbers(ours.step(tensor(action))), theirs.step(action)
        np.testing.assert_allclose(mine[0], expected[0], rtol=0, atol=1e-3)
        for k in (2, 3, 4):
            np.testing.assert_array_equal(mine[k], expected[k])
        ended = mine[4] | mine[3]
        if ended.any():
            for name, values in expected[5]["episode"].items():
                np.testing.assert_allclose(mine[5]["episode"][name][ended], values[ended], rtol=0, atol=1e-2)


def test_episodes_that_end_with_a_violation_are_those_of_the_cpu_engine() -> None:
    slow = replace(get_spec(HOPPER), threshold=0.05)  # which a fall forwards exceeds
    theirs, ours = (sbtrpo.make_pool(slow, 4, 7, engine=name, end_at_violation=True) for name in ("cpu", ENGINE))
    theirs.reset()
    ours.reset()
    violated = 0
    for action in actions(theirs, 12, 3):
        mine, expected = numbers(ours.step(tensor(action))), theirs.step(action)
        for k in (2, 3, 4):
            np.testing.assert_array_equal(mine[k], expected[k])
        assert (mine[3] >= (mine[2] > 0)).all()
        violated += int(mine[2].sum())
    assert violated > 0


def test_an_observation_tells_of_violations_and_is_otherwise_what_it_was() -> None:
    """Through the ends of episodes and in a restored pool; a hazard is put where it costs."""
    pool, plain = (
        pool_of(replace(task_of(on), start=(5, 5, 5, 5), episode_length=6, substeps=1), 4) for on in (True, False)
    )
    for one in (pool, plain):
        one.reset()
    unviolated, seen = np.ones(4), set()
    for k, action in enumerate(actions(pool, 14)):
        if k == 9:
            state, pool = pool.state_dict(), pool_of(pool.spec, 4, 5)
            np.testing.assert_array_equal(state["obs"][:, -1], [1, 1, 0, 1])
            pool.load_state_dict(state)
        for one in (pool, plain):
            worlds, hazard = one.task.worlds, one.task.slices["hazards"].start
            worlds.objects[:, hazard, :2] = 0
            if (world := {1: 0, 2: 3, 7: 2, 8: 2, 10: 3}.get(k)) is not None:
                worlds.objects[world, hazard, :2] = worlds.position[world, :2]
        ours, theirs = numbers(pool.step(tensor(action))), numbers(plain.step(tensor(action)))
        unviolated[ours[2] > 0] = 0
        ended = ours[5]["_episode"]
        np.testing.assert_array_equal(ours[5]["final_obs"][ended, -1], unviolated[ended])
        seen |= set(unviolated[ended])
        unviolated[ended] = 1
        np.testing.assert_array_equal(ours[0][:, -1], unviolated)
        np.testing.assert_array_equal(ours[0][:, :-1], theirs[0])
        for mine, other in zip(ours[1:5], theirs[1:5], strict=True):
            np.testing.assert_array_equal(mine, other)
    assert seen == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["qpos", "qvel"])
def test_a_world_that_is_not_finite_is_reset_counted_and_alone(kind: str) -> None:
    one, other = pool_of(HOPPER, 4, 1), pool_of(HOPPER, 4, 1)
    for pool in (one, other):
        pool.reset()
    first, bad, *after = actions(one, 4)
    before = numbers(one.step(tensor(first))[0])
    other.step(tensor(first))
    getattr(one.physics, kind)[2, 3] = float("nan")
    results = [numbers(pool.step(tensor(bad))) for pool in (one, other)]
    obs, reward, cost, terminated, truncated, info = results[0]
    assert info["fault"].tolist() == [False, False, True, False]
    assert truncated[2]
    assert not terminated[2]
    assert reward[2] == cost[2] == 0
    np.testing.assert_array_equal(info["final_obs"][2], before[2])
    assert np.isfinite(obs).all()
    assert one.faults == 1
    assert other.faults == 0
    for action in (None, *after):
        if action is not None:
            results = [numbers(pool.step(tensor(action))) for pool in (one, other)]
            assert not results[0][5]["fault"].any()
        beside = [0, 1, 3]
        for ours, theirs in zip(results[0][:5], results[1][:5], strict=True):
            np.testing.assert_array_equal(ours[beside], theirs[beside])
    assert one.faults == 1


@pytest.mark.parametrize("task", [HOPPER, LIGHT])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_action_that_is_not_finite_fails_its_world_alone(task: str, value: float) -> None:
    pool = pool_of(task, 3)
    pool.reset()
    action = np.zeros((3, *pool.single_action_space.shape), np.float32)
    action[1, 0] = value
    obs, _, _, _, truncated, info = numbers(pool.step(tensor(action)))
    assert info["fault"].tolist() == truncated.tolist() == [False, True, False]
    assert np.isfinite(obs).all()
    info = numbers(pool.step(tensor(np.zeros_like(action)))[5])
    assert not info["fault"].any()
    assert pool.faults == 1


@pytest.mark.slow
def test_what_sleeping_bodies_felt_is_forgotten() -> None:
    """A force that is left where they sleep moves nobody, however large it is."""
    pools = [pool_of("SafetyPointGoal2-v0", 2, 5) for _ in range(2)]
    for pool in pools:
        pool.reset()
        still = torch.zeros((2, 2), device=DEVICE)
        for _ in range(40):
            pool.step(still)
            if (pool.physics.data.nefc.numpy() == 0).all():
                break
        assert (pool.physics.data.nefc.numpy() == 0).all(), "all vases are to sleep, and nothing touches the robot"
    pools[1].physics.data.cqfrc_constraint.fill_(1e20)
    moved = [numbers(pool.step(tensor(actions(pool, 1)[0]))) for pool in pools]
    for one, other in zip(moved[0][:5], moved[1][:5], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert pools[1].faults == 0
