"""Reinforcement learning under hard safety constraints."""

from __future__ import annotations

from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool, make_pool, task_ids
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
