"""The engine under test: the GPU's, and where there is no GPU the same kernels on Warp's CPU device.

SBTRPO_TEST_DEVICE=cpu chooses the latter everywhere.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import warp

import sbtrpo
from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.gpu import GpuPool
from sbtrpo.envs.physics import gpu as physics

warp.config.log_level = warp.LOG_WARNING
warp.init()

__all__ = ["DEVICE", "ENGINE", "HOPPER", "LIGHT", "ON_GPU", "GpuPool", "numbers", "physics", "pool_of", "tensor"]
ON_GPU = torch.cuda.is_available() and os.environ.get("SBTRPO_TEST_DEVICE", "cuda") == "cuda"
ENGINE = "gpu" if ON_GPU else "gpu-on-cpu"
DEVICE = "cuda" if ON_GPU else "cpu"
LIGHT, HOPPER = "SafetyPointGoal1-v0", "SafetyHopperVelocity-v1"
"""Tasks whose step takes a fifth of a second on Warp's CPU device; that of others takes seconds."""


def pool_of(task: Any, worlds: int, seed: int = 0, **options: Any) -> GpuPool:
    pool = sbtrpo.make_pool(task, worlds, seed, engine=ENGINE, **options)
    assert isinstance(pool, GpuPool)
    return pool


def tensor(values: Any) -> torch.Tensor:
    """On the device, in single precision."""
    return torch.as_tensor(values, dtype=torch.float32, device=DEVICE)


def numbers(values: Any) -> Any:
    """On the host: arrays or tensors, nested in dicts or tuples."""
    if isinstance(values, dict):
        return {name: numbers(entry) for name, entry in values.items()}
    return tuple(numbers(entry) for entry in values) if isinstance(values, tuple) else to_numpy(values)
