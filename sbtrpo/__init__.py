"""Reinforcement learning under hard safety constraints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sbtrpo.envs.gym import register_gymnasium
from sbtrpo.version import VERSION

__version__ = VERSION
__all__ = [
    "Callback",
    "EarlyStopping",
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

if TYPE_CHECKING:
    from sbtrpo.config import TrainConfig
    from sbtrpo.envs import Pool, make_pool, task_ids
    from sbtrpo.learning.callbacks import Callback, EarlyStopping
    from sbtrpo.learning.training import resume, train
    from sbtrpo.runs.evaluation import evaluate, load_policy
else:
    _LATER = {
        "Callback": "learning.callbacks",
        "EarlyStopping": "learning.callbacks",
        "Pool": "envs",
        "TrainConfig": "config",
        "evaluate": "runs.evaluation",
        "load_policy": "runs.evaluation",
        "make_pool": "envs",
        "resume": "learning.training",
        "task_ids": "envs",
        "train": "learning.training",
    }
    """Where the names are, imported on first use: MuJoCo and torch take seconds together."""

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module 'sbtrpo' has no attribute {name!r}")
        return getattr(importlib.import_module(f"sbtrpo.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_gymnasium()  # gymnasium.make("sbtrpo:SafetyPointGoal2-v0") imports this module and expects it
