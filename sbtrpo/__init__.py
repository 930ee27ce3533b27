"""Reinforcement learning under hard safety constraints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool, make_pool, task_ids
from sbtrpo.envs.gym import register_gymnasium

if TYPE_CHECKING:
    from sbtrpo.evaluation import evaluate, load_policy
    from sbtrpo.training import resume, train

__version__ = "0.1.0"
__all__ = [
    "Pool",
    "TrainConfig",
    "__version__",
    "evaluate",
    "load_policy",
    "make_pool",
    "resume",
    "task_ids",
    "train",
]
_LATER = {"evaluate": "evaluation", "load_policy": "evaluation", "resume": "training", "train": "training"}
"""Names whose modules are imported on first use: who only steps worlds need not wait for torch."""

register_gymnasium()  # gymnasium.make("sbtrpo:SafetyPointGoal2-v0") imports this module and expects it


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"sbtrpo.{_LATER[name]}"), name)
    raise AttributeError(f"module 'sbtrpo' has no attribute {name!r}")
