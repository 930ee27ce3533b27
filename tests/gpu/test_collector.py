"""What is collected on a device step by step is what any pool gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.envs.constraints import make_constraints
from sbtrpo.envs.registry import get_spec
from sbtrpo.learning.device import DeviceCollector
from sbtrpo.learning.rollout import Collector, Rollout
from sbtrpo.nets.forms import TorchForm
from sbtrpo.nets.network import PUBLISHED, Design
from sbtrpo.nets.policy import make_policy
from tests.gpu.engines import DEVICE, HOPPER, ON_GPU, numbers, pool_of

CLOSE = 0.05 if ON_GPU else 1e-5
"""Pools of one seed part by rounding on a GPU, and the accelerometer shows it first: by 0.02 where something is hit."""


def collected(
    kind: Any, task: str, constraints: str, epochs: int = 2, spoil: bool = False, design: Design = PUBLISHED
) -> tuple[Any, list[Rollout]]:
    """A collector and its epochs, of worlds whose episodes are seven steps long."""
    pool = pool_of(replace(get_spec(task), episode_length=7), 4, 3)
    policy = make_policy(
        pool.task.observation_size, pool.env_action_space, (16,), torch.Generator().manual_seed(0), DEVICE, design
    )
    chosen = make_constraints(constraints, pool)
    collector = kind(pool, policy, torch.Generator().manual_seed(1), chosen, TorchForm(DEVICE))
    collector.start()
    rollouts = []
    for _ in range(epochs):
        if spoil:
            pool.physics.qvel[1, 2] = float("nan")
        rollout = collector.collect(5)
        rollouts.append(Rollout(**{name: _kept(values) for name, values in vars(rollout).items()}))
    return collector, rollouts


def _kept(values: Any) -> Any:
    return values.clone() if isinstance(values, torch.Tensor) else values


@pytest.mark.parametrize(
    ("task", "constraints", "spoil", "design"),
    [
        (HOPPER, "sum", True, PUBLISHED),
        (HOPPER, "each", False, Design("relu", orthogonal=True, log_std=-1.0, normalise=False)),
        pytest.param("SafetyPointGoal1-v0", "sum", False, Design("elu"), marks=pytest.mark.slow),
        pytest.param("SafetyPointButton2-v0", "hazards buttons+gremlins", False, PUBLISHED, marks=pytest.mark.slow),
    ],
)
def test_both_collectors_collect_the_same(task: str, constraints: str, spoil: bool, design: Design) -> None:
    ours, rollouts = collected(DeviceCollector, task, constraints, spoil=spoil, design=design)
    theirs, expected = collected(Collector, task, constraints, spoil=spoil, design=design)
    for mine, wanted in zip(rollouts, expected, strict=True):
        for name, values in vars(wanted).items():
            if isinstance(values, torch.Tensor):
                gap = (getattr(mine, name).double() - values.double()).abs() / (1 + values.double().abs())
                assert getattr(mine, name).shape == values.shape, name
                assert not gap.numel() or float(gap.max()) < CLOSE, name
        assert mine.episodes.keys() == wanted.episodes.keys()
        for name, column in wanted.episodes.items():
            np.testing.assert_allclose(mine.episodes[name], column, rtol=CLOSE, atol=CLOSE, err_msg=name)
        assert mine.faults == wanted.faults == int(spoil)
    assert sum(len(mine.episodes["return"]) for mine in rollouts) >= 4
    for name, values in theirs.policy.normaliser.state_dict().items():
        np.testing.assert_allclose(ours.policy.normaliser.state_dict()[name], values, rtol=CLOSE, atol=CLOSE)
    state, other = ours.state_dict(), theirs.state_dict()
    assert state.keys() == other.keys()
    np.testing.assert_allclose(numbers(state["obs"]), numbers(other["obs"]), rtol=CLOSE, atol=CLOSE)
    np.testing.assert_array_equal(state["age"], other["age"])
    assert torch.equal(state["generator"], other["generator"])


def test_a_loaded_collector_goes_on_as_the_saved_one() -> None:
    saved, _ = collected(DeviceCollector, HOPPER, "sum")
    loaded, _ = collected(DeviceCollector, HOPPER, "sum", epochs=1)
    loaded.policy.load_state_dict(saved.policy.state_dict())
    loaded.load_state_dict(saved.state_dict())
    one, other = saved.collect(5), loaded.collect(5)
    for name, values in vars(one).items():
        if isinstance(values, torch.Tensor):
            gap = (getattr(other, name).double() - values.double()).abs()
            assert not gap.numel() or float(gap.max()) < 1e-6, name
