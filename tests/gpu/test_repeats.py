"""Pools of one seed, and a restored one: to the bit on Warp's CPU device; on a GPU they part, by rounding at first."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.engines import LIGHT, ON_GPU, numbers, pool_of, tensor

STEPS, WORLDS = (10, 512) if ON_GPU else (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("task", [LIGHT, "SafetyCarPush2-v0"])
def test_numbers_repeat(task: str) -> None:
    actions = tensor(np.random.default_rng(0).uniform(-1, 1, (2 * STEPS, WORLDS, 2)))
    first, second, restored = (pool_of(task, WORLDS, 2) for _ in range(3))
    for pool in (first, second, restored):
        pool.reset()
    for action in actions[:STEPS]:
        first.step(action)
        second.step(action)
    first.wake()
    second.wake()
    restored.load_state_dict(first.state_dict())
    for action in actions[STEPS:]:
        seen = [pool.step(action)[:3] for pool in (first, second, restored)]
    for again in seen[1:]:
        for values, expected in zip(again, seen[0], strict=True):
            apart = abs(numbers(values).astype(float) - numbers(expected))
            if ON_GPU:  # the accelerometer reads tens of m/s^2; worlds in which bodies collide are the tenth left out
                assert np.quantile(apart, 0.9) < 1e-3
            else:
                assert not apart.any()
