"""Engines that step many worlds of one model at once."""

from __future__ import annotations

from typing import Any

from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.physics.cpu import CpuPhysics

ENGINES = ("cpu",)


def make_physics(engine: str, model: Any, num_worlds: int, threads: int) -> Physics:
    """An engine by name."""
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is not installed; use engine='cpu', which runs on all cores")
    return CpuPhysics(model, num_worlds, threads)


__all__ = ["ENGINES", "CpuPhysics", "Physics", "make_physics"]
