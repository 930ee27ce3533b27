"""What a run's networks are made of, by its settings and by what its worlds show."""

from __future__ import annotations

import numpy as np

from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool
from sbtrpo.envs.observation import UNVIOLATED
from sbtrpo.errors import UserError
from sbtrpo.nets.images import Image
from sbtrpo.nets.network import Design


def design_for(config: TrainConfig, pool: Pool) -> Design:
    """The design of policy and critics; a cnn is refused where there are no images."""
    if config.network == "mlp":
        return Design.of(config, plain=int(UNVIOLATED in pool.task.observation_slices))
    shape, task, space = getattr(pool.task, "image", None), config.task_entry.label, pool.single_observation_space
    if shape is None:
        raise UserError(f"network cnn is for images, and observations of {task} are vectors; leave network at mlp")
    low, high = float(space.low.min()), float(space.high.max())
    if not np.isfinite([low, high]).all():
        raise UserError(
            f"network cnn reads the bounds of pixels, and those of {task} are infinite; give its Box bounds"
        )
    return Design.of(config, Image(shape, low, high))
