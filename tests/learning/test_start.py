"""One seed, one start: whatever the method, its first policy and the worlds that it meets are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sbtrpo.config import catalogue
from sbtrpo.learning.trainer import Epoch, Trainer
from tests.settings import config_of

SMALL: dict[str, Any] = {
    "task": "ToyCorridor-v0",
    "num_envs": 4,
    "steps_per_epoch": 200,
    "hidden": (8, 8),
    "threads": 1,
}


def first_epoch(algo: str, seed: int) -> tuple[list[NDArray[Any]], Epoch]:
    """The policy that a run begins with, and its first epoch."""
    trainer = Trainer(config_of(algo, **SMALL, seed=seed, total_steps=400))
    start = [param.numpy().copy() for param in trainer.policy.params]
    return start, trainer.run_epoch()


@pytest.mark.parametrize("algo", catalogue.names())
def test_every_method_starts_from_one_policy_in_the_same_worlds(algo: str) -> None:
    expected, reference = first_epoch("sb-trpo", seed=5)
    start, epoch = first_epoch(algo, seed=5)
    for ours, theirs in zip(start, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert list(epoch.episodes) == list(reference.episodes)
    for column, values in epoch.episodes.items():
        np.testing.assert_array_equal(values, reference.episodes[column], err_msg=column)
    for column in ("reward", "cost", "safety_probability"):
        assert epoch.row[column] == reference.row[column]


def test_another_seed_is_another_start() -> None:
    one, first = first_epoch("sb-trpo_critic", seed=5)
    other, second = first_epoch("sb-trpo_critic", seed=6)
    assert not np.array_equal(one[1], other[1])
    assert not np.array_equal(first.episodes["return"], second.episodes["return"])
