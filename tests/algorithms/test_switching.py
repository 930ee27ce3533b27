"""TRPO and the methods that are TRPO with another objective: Lagrangian, switching, or both objectives at once."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sbtrpo.algorithms.base import Batch, Trial
from sbtrpo.algorithms.pcrpo import without_conflict
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion
from tests.algorithms.problems import KL, dense, pure_steps
from tests.algorithms.samples import altered, make, make_batch, make_policy, start, theta_of


def stepped(algo: str, batch: Batch, cost: float, limit: float = 25.0, **settings: Any) -> Tensor:
    """Where an update of a fresh method leads."""
    method, _ = start(algo, cost_limit=limit, critic_passes=1, **settings)
    assert method.update(batch, cost, 0.0)["accepted_step"] > 0
    return theta_of(method)


def with_reward(batch: Batch, advantage: Tensor) -> Batch:
    return altered(batch, advantage_r=advantage)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return start("trpo")[1]


@pytest.fixture(scope="module")
def reward_step(batch: Batch) -> Tensor:
    return stepped("trpo", batch, 0.0)


@pytest.fixture(scope="module")
def cost_step(batch: Batch) -> Tensor:
    return stepped("trpo", with_reward(batch, -batch.advantage_c), 0.0)


def proposed(algo: str, cost: float, limit: float, **settings: Any) -> tuple[Proposal, TrustRegion]:
    """In float64, with as many iterations as it takes."""
    policy = make_policy(0, 3, 2, (4,))
    method = make(algo, policy, cost_limit=limit, cg_epsilon=0.0, cg_iterations=300, **settings)
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", method.settings.cg_damping)
    return method.propose(region, region.gradients(), [cost]), region  # type: ignore[attr-defined]


# ---- TRPO ----------------------------------------------------------------------------------------------------------


def test_trpos_step_is_the_best_one_of_the_dense_fisher_matrix() -> None:
    proposal, region = proposed("trpo", 0.0, 0.0)
    f = dense(region.fisher, len(region.theta))
    torch.testing.assert_close(proposal.step, pure_steps(f, *region.gradients())[0], rtol=1e-4, atol=1e-8)
    assert proposal.curvature == pytest.approx(2 * KL, rel=1e-4)


def test_trpo_does_not_know_of_the_cost(batch: Batch, reward_step: Tensor) -> None:
    other = altered(batch, advantage_c=-3 * batch.advantage_c)
    assert torch.equal(stepped("trpo", other, 1e6, limit=0.0), reward_step)


@pytest.mark.parametrize("algo", ["trpo", "trpo_lag", "crpo"])
def test_an_accepted_step_keeps_the_kl_and_its_objective(algo: str) -> None:
    method, batch = start(algo, cost_limit=25.0, target_kl=0.3, cg_damping=1e-3)
    found = method.update(batch, 0.0, 0.0)
    assert 0 < found["accepted_step"] < 1  # so far that the line search must shorten it
    assert found["kl"] <= 0.3
    assert found["surrogate_r_change"] >= 0


@pytest.mark.parametrize(
    ("algo", "cost", "change", "accepted"),
    [
        ("trpo", 99.0, (0.0, 9.0, KL), True),  # no gain is no loss, and cost is no matter
        ("trpo", 99.0, (-1e-6, -9.0, 0.0), False),
        ("trpo", 99.0, (1.0, 0.0, 1.01 * KL), False),
        ("crpo", 25.0, (-1e-6, -9.0, 0.0), False),
        ("crpo", 99.0, (-9.0, 0.0, KL), True),  # a step on cost alone
        ("crpo", 99.0, (9.0, 1e-6, 0.0), False),
        ("c_trpo", 99.0, (9.0, 1e-6, 0.0), False),
        ("trpo_lag", 99.0, (1.0, 27.0, KL), True),  # λ = 0.036: a gain of 1 makes up for a cost of 27.8
        ("trpo_lag", 99.0, (1.0, 29.0, 0.0), False),
        ("rcpo", 99.0, (-9.0, 9.0, 9.0), True),
    ],
)
def test_the_line_search_asks_for_no_loss_in_the_objective_and_for_the_kl(
    algo: str, cost: float, change: tuple[float, float, float], accepted: bool
) -> None:
    proposal, region = proposed(algo, cost, 25.0)
    trial = Trial(change[2], (region.old.surrogate_r + change[0], region.old.surrogate_c + change[1]))
    assert proposal.acceptable(trial) is accepted


# ---- TRPO-Lag and RCPO ---------------------------------------------------------------------------------------------


def test_trpo_lag_is_trpo_on_the_lagrangian(batch: Batch) -> None:
    multiplier = 0.001 + 0.035  # Adam's first step is its rate
    mixed = (batch.advantage_r - multiplier * batch.advantage_c) / (1 + multiplier)
    expected = stepped("trpo", with_reward(batch, mixed), 0.0)
    found = stepped("trpo_lag", batch, 30.0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", [0.01, 3.0])
def test_rcpo_takes_trpo_lags_step_in_full(target: float) -> None:
    results = {}
    for algo in ("rcpo", "trpo_lag"):
        method, batch = start(algo, cost_limit=25.0, target_kl=target, cg_damping=1e-3)
        before = theta_of(method)
        found = method.update(batch, 30.0, 0.0)
        results[algo] = found, (theta_of(method) - before) / found["accepted_step"]
    found, step = results["rcpo"]
    assert (found["accepted_step"], found["line_search_tries"]) == (1.0, 1.0)
    torch.testing.assert_close(step, results["trpo_lag"][1], rtol=1e-3, atol=1e-6)
    if target == 3.0:  # where TRPO-Lag must shorten it: the KL is what it is
        assert results["trpo_lag"][0]["accepted_step"] < 1
        assert found["kl"] > target


# ---- CRPO ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "tolerance", "feasible"), [(0.0, 0.0, 1), (25.0, 0.0, 1), (25.1, 0.0, 0), (26.9, 2.0, 1), (27.1, 2.0, 0)]
)
def test_crpo_switches_between_reward_and_cost_at_the_limit(
    cost: float, tolerance: float, feasible: int, batch: Batch, reward_step: Tensor, cost_step: Tensor
) -> None:
    found = stepped("crpo", batch, cost, tolerance=tolerance)
    torch.testing.assert_close(found, reward_step if feasible else cost_step, rtol=1e-5, atol=1e-6)
    method, _ = start("crpo", cost_limit=25.0, tolerance=tolerance)
    assert method.update(batch, cost, 0.0)["feasible"] == feasible


# ---- PCRPO ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cost", "regime"), [(30.1, -1), (30.0, 0), (25.0, 0), (20.0, 0), (19.9, 1), (0.0, 1)])
def test_pcrpo_has_three_regimes_around_the_limit(cost: float, regime: int) -> None:
    proposal, region = proposed("pcrpo", cost, 25.0)
    f = dense(region.fisher, len(region.theta))
    v_r, v_c = pure_steps(f, *region.gradients())
    assert proposal.facts["regime"] == regime
    expected = {1: v_r, -1: v_c, 0: without_conflict(v_r, v_c)}[regime]
    torch.testing.assert_close(proposal.step, expected, rtol=1e-4, atol=1e-7)


@given(st.integers(2, 10), st.integers(0, 10_000))
def test_the_combined_step_works_against_neither_objective(size: int, seed: int) -> None:
    v_r, v_c = torch.randn((2, size), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    step, small = without_conflict(v_r, v_c), 1e-9 * float(v_r.norm() * v_c.norm())
    assert float(step @ v_r) >= -small
    assert float(step @ v_c) >= -small
    if float(v_r @ v_c) >= 0:
        torch.testing.assert_close(step, (v_r + v_c) / 2)


@given(st.integers(2, 10), st.integers(0, 10_000))
def test_conflicting_steps_are_projected_onto_each_others_normal_planes(size: int, seed: int) -> None:
    v_r, v_c = torch.randn((2, size), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inner = float(v_r @ v_c)
    assume(inner < 0)
    along_c = 2 * without_conflict(v_r, v_c) - (v_r - inner / float(v_c @ v_c) * v_c)  # v_c⁺, if v_r⁺ is right
    assert float(along_c @ v_r) == pytest.approx(0, abs=1e-9 * float(v_r.norm() * v_c.norm()))
    torch.testing.assert_close(along_c, v_c - inner / float(v_r @ v_r) * v_r)


@pytest.mark.parametrize("factor", [-1.0, -0.1, 0.0])
def test_opposite_or_missing_steps_leave_something_finite(factor: float) -> None:
    v = torch.tensor([1.0, 2.0, 2.0])
    step = without_conflict(v, factor * v)
    torch.testing.assert_close(step, torch.zeros(3) if factor else v / 2)


def test_pcrpos_line_search_asks_for_the_kl_alone() -> None:
    proposal, region = proposed("pcrpo", 25.0, 25.0)
    old = region.old
    assert proposal.acceptable(dataclasses.replace(old, kl=KL, surrogates=(-math.inf, math.inf)))
    assert not proposal.acceptable(dataclasses.replace(old, kl=1.01 * KL))
