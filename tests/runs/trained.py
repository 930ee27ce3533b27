"""A run that takes a second, for what is done with trained policies."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import sbtrpo
from sbtrpo import TrainConfig

FORMATS: list[Literal["onnx", "torchscript"]] = ["onnx", "torchscript"]
"""In which a policy is exported."""


def trained(out: Path, task: str) -> Path:
    """Three epochs of four worlds, with a small network."""
    config = TrainConfig(task=task, num_envs=4, steps_per_epoch=320, total_steps=960, hidden=(8,), threads=1)
    return sbtrpo.train(config, out, quiet=True)
