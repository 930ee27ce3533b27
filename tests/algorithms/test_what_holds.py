"""How much of what a step from half of the worlds promises holds in the others."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.trust_region import TrustRegion, what_holds
from sbtrpo.config import catalogue
from sbtrpo.nets.network import flatten
from tests.algorithms.samples import make, make_batch, make_policy
from tests.settings import config_of

SETTINGS = config_of("sb-trpo", cg_iterations=200, cg_tolerance=1e-10).method


def holding(batch: Batch, worlds: int) -> list[float]:
    region = TrustRegion(make_policy(), dataclasses.replace(batch, worlds=worlds), "mean_over_dims", 0.02)
    return what_holds(region, SETTINGS)


def twice(batch: Batch) -> Batch:
    """Two worlds in which the same happens: samples of one time are in a row."""
    obs, action, log_prob = (x.repeat_interleave(2, dim=0) for x in (batch.obs, batch.action, batch.log_prob))
    return Batch(obs, action, log_prob, batch.advantages.repeat_interleave(2, dim=1))


def test_all_of_it_where_both_halves_are_alike() -> None:
    np.testing.assert_allclose(holding(twice(make_batch(make_policy())), 2), [1.0, 1.0], rtol=1e-6)


def test_nothing_on_average_where_advantages_are_noise() -> None:
    policy, found = make_policy(), []
    for seed in range(40):
        batch = make_batch(policy, seed, size=400)
        noise = torch.randn(batch.advantages.shape, generator=torch.Generator().manual_seed(seed)).double()
        found.append(holding(dataclasses.replace(batch, advantages=noise), 20))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / math.sqrt(len(found))
    assert (abs(mean) < 3 * error).all()
    assert (error < 0.1).all()


def test_more_of_it_with_more_worlds() -> None:
    few, many = (
        np.mean([holding(make_batch(make_policy(), seed, size), size // 10) for seed in range(5)], axis=0)
        for size in (100, 4000)
    )
    assert (few < many - 0.2).all()
    assert (many > 0.8).all()


def test_halves_are_weighted_by_their_size() -> None:
    """Of five worlds three are in one half; their gradients' weighted mean is the batch's."""
    batch = dataclasses.replace(make_batch(make_policy()), worlds=5)
    region = TrustRegion(make_policy(), batch, "mean_over_dims", 0.02)
    one, other = region.gradients_of_halves()
    torch.testing.assert_close(0.6 * one + 0.4 * other, region.gradients())


@pytest.mark.parametrize("algo", [entry.name for entry in catalogue.entries() if entry.family == "trust region"])
def test_every_trust_region_method_tells_it_and_does_the_same(algo: str) -> None:
    batch = make_batch(make_policy(), heads=config_of(algo).method.heads(1))
    updates = []
    for worlds in (0, 10):
        policy = make_policy()
        numbers = make(algo, policy).update(dataclasses.replace(batch, worlds=worlds), 5.0, 0.0)
        updates.append((flatten(policy.params), numbers))
    (theta, silent), (again, told) = updates
    assert torch.equal(theta, again)
    assert silent.keys() == told.keys()
    asked = {"holds_r", "holds_c"}
    assert all(math.isnan(silent[name]) and -1 <= told[name] <= 1 for name in asked)
    assert all(told[name] == value or math.isnan(value) for name, value in silent.items() if name not in asked)
