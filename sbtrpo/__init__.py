"""Reinforcement learning under hard safety constraints."""

from __future__ import annotations

from sbtrpo.envs import Pool, make_pool, task_ids

__version__ = "0.1.0"
__all__ = ["Pool", "__version__", "make_pool", "task_ids"]
