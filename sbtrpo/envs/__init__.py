"""Worlds: the tasks, the engines under them, and the pool that steps many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbtrpo.envs.gym import register
from sbtrpo.envs.registry import get_spec, task_ids

if TYPE_CHECKING:
    from sbtrpo.envs.pool import Pool, make_pool
else:

    def __getattr__(name: str) -> object:
        """Import the pool, and with it MuJoCo, only where it is used: listing the tasks must be fast."""
        if name not in ("Pool", "make_pool"):
            raise AttributeError(f"module 'sbtrpo.envs' has no attribute {name!r}")
        from sbtrpo.envs import pool

        return getattr(pool, name)


__all__ = ["Pool", "get_spec", "make_pool", "register", "task_ids"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
