"""Worlds: the tasks, the engines under them, and the pool that steps many at once."""

from __future__ import annotations

from sbtrpo.envs.pool import Pool, make_pool
from sbtrpo.envs.registry import get_spec, register, task_ids

__all__ = ["Pool", "get_spec", "make_pool", "register", "task_ids"]
