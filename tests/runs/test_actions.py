"""A policy gives actions that the environment's own action space contains, whatever that is, and so do its exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.nets.policy import Policy, make_policy
from sbtrpo.runs.export import describe
from tests.envs.foreign.worlds import name_of
from tests.runs.test_export import WRITERS, deployed

SIZE = 3
OLD = Path(__file__).parents[1] / "data" / "old_runs" / "runs" / "ToyCorridor-v0"
SPACES: dict[str, Any] = {
    "vector": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "bounds that single precision does not hold": spaces.Box(-0.1, 0.4, (2,), np.float64),
    "each its own": spaces.Box(np.array([-2, 0.1], np.float32), np.array([4, 0.3], np.float32)),
    "half precision": spaces.Box(-0.1, 0.7, (2,), np.float16),
    "matrix": spaces.Box(-0.3, 1.0, (2, 3), np.float32),
    "number": spaces.Box(0.1, 0.7, (), np.float64),
    "choice": spaces.Discrete(3),
    "choice from -1 on": spaces.Discrete(3, start=-1),
    "choice from 5 on": spaces.Discrete(2, start=5),
}
every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
SINGLE = {name: space for name, space in SPACES.items() if name != "half precision"}
"""Those of which exports, which are of single precision, can give an action."""


def policy_for(space: Any) -> Policy:
    """As `load_policy` brings it back; its actions reach far beyond the bounds."""
    made = make_policy(SIZE, space, (8,), torch.Generator().manual_seed(0))
    for tensor in made.params[1:]:
        tensor.mul_(20)
    made.log_std.fill_(1.0)
    discrete = isinstance(space, spaces.Discrete)
    restored = Policy(SIZE, made.head.outputs, (8,), torch.Generator(), discrete=discrete)
    restored.load_state_dict(made.state_dict())
    return restored


def observations() -> Any:
    return np.random.default_rng(0).normal(0, 3, (200, SIZE))


def assert_contained(actions: Any, space: Any) -> None:
    assert all(space.contains(np.asarray(action)) for action in actions)
    distinct = np.unique(np.asarray(actions))
    if isinstance(space, spaces.Discrete):
        np.testing.assert_array_equal(distinct, np.arange(space.start, space.start + space.n))
    else:
        assert np.isclose(distinct, space.low.min(), rtol=1e-3).any()  # many were clipped
        assert np.isclose(distinct, space.high.max(), rtol=1e-3).any()


@every_space
@pytest.mark.parametrize("deterministic", [False, True])
def test_actions_lie_in_the_action_space(space: Any, deterministic: bool) -> None:
    policy, obs = policy_for(space), observations()
    actions = policy.act(obs, deterministic, seed=1)
    assert actions.shape == (200, *space.shape)
    assert actions.dtype == space.dtype
    assert_contained(actions, space)
    assert_contained([policy.act(one, deterministic) for one in obs], space)
    tensors = policy.act_tensor(torch.from_numpy(obs), deterministic, torch.Generator().manual_seed(1))
    np.testing.assert_array_equal(tensors.numpy(), actions)


@pytest.mark.parametrize("space", SINGLE.values(), ids=SINGLE)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kind", WRITERS)
def test_exported_actions_lie_in_the_action_space(kind: str, deterministic: bool, space: Any, tmp_path: Path) -> None:
    policy, obs = policy_for(space), observations()
    act = deployed(kind, policy, deterministic, tmp_path)
    noise = policy.head.noise(torch, (200,), torch.Generator().manual_seed(1))
    actions = act(obs) if deterministic else act(obs, noise.numpy())
    assert_contained(actions, space)
    np.testing.assert_allclose(actions, policy.act(obs, deterministic, seed=1), atol=1e-4)


@pytest.mark.parametrize("shape", [(), (SIZE + 1,), (1,), (SIZE, 1), (4, 1), (2, 4, SIZE), (0,)])
@every_space
def test_an_observation_of_another_shape_is_refused(space: Any, shape: tuple[int, ...]) -> None:
    policy = policy_for(space)
    for act in (lambda: policy.act(np.zeros(shape)), lambda: policy.act_tensor(torch.zeros(shape))):
        with pytest.raises(ValueError, match=r"the shape \(3,\), or \(N, 3\) for N of them, got"):
            act()


# ---- of runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["SafetyCarGoal2-v0", "SafetyHumanoidVelocity-v1"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_gymnasiums_environments_take_the_actions(task: str, deterministic: bool) -> None:
    env = gymnasium.make(f"sbtrpo:{task}")
    pool = sbtrpo.make_pool(task, 1)
    policy = make_policy(pool.task.observation_size, pool.env_action_space, (8,), torch.Generator().manual_seed(0))
    for tensor in policy.params[1:]:
        tensor.mul_(20)
    obs, _ = env.reset(seed=0)
    for seed in range(30):
        action = policy.act(obs, deterministic, seed)
        assert env.action_space.contains(action)
        obs, _, terminated, _, _ = env.step(action)
        obs = env.reset()[0] if terminated else obs


@pytest.mark.usefixtures("one_thread")
def test_a_run_remembers_how_its_environment_counts(tmp_path: Path) -> None:
    task = name_of("rooms")
    config = TrainConfig(task=task, num_envs=2, threads=1, steps_per_epoch=20, total_steps=20, hidden=(4,))
    policy = sbtrpo.load_policy(sbtrpo.train(config, tmp_path / "run", quiet=True))
    space = gymnasium.make("Rooms-v0", disable_env_checker=True).action_space
    actions = policy.act(np.random.default_rng(0).normal(size=(200, 9)), seed=0)
    assert set(actions.tolist()) == {1, 2, 3}
    assert all(space.contains(action) for action in actions)
    about = describe(policy, deterministic=True)
    assert (json.loads(about["action_start"]), json.loads(about["action_shape"])) == (1, [])


def test_the_policy_of_an_old_run_acts_within_its_bounds() -> None:
    policy = sbtrpo.load_policy(next(OLD.glob("cpo/*")))
    actions = policy.act(np.random.default_rng(0).normal(0, 3, (200, 2)), seed=0)
    space = sbtrpo.make_pool("ToyCorridor-v0", 1).single_action_space
    assert all(space.contains(action) for action in actions)
