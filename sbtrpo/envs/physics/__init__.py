"""Engines that step many worlds of one model at once."""

from __future__ import annotations

from typing import Any

from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.physics.cpu import CpuPhysics


def make_physics(engine: str, model: Any, num_worlds: int, threads: int) -> Physics:
    """An engine by name."""
    if engine == "cpu":
        return CpuPhysics(model, num_worlds, threads)
    import warp  # an optional package

    from sbtrpo.envs.physics.gpu import GpuPhysics

    warp.config.log_level = warp.LOG_WARNING  # it would tell of every kernel that it loads
    return GpuPhysics(model, num_worlds, "cuda" if engine == "gpu" else "cpu")


__all__ = ["CpuPhysics", "Physics", "make_physics"]
