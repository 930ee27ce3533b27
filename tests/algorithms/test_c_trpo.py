"""C-TRPO: the barrier in its divergence, and its two modes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sbtrpo.algorithms.c_trpo import CTRPO, barrier
from sbtrpo.algorithms.trust_region import KLReduction, Proposal, TrustRegion
from sbtrpo.nets.network import unflatten
from tests.algorithms.problems import dense
from tests.algorithms.samples import make, make_batch, make_policy, start

KL = 0.01
DAMPING = 0.1


def proposed(cost: float, limit: float, reduction: KLReduction = "mean_over_dims") -> tuple[Proposal, TrustRegion]:
    policy = make_policy(0, 3, 2, (4,))
    settings: dict[str, Any] = {"cg_iterations": 300, "cg_epsilon": 0.0, "kl_reduction": reduction}
    method = make("c_trpo", policy, cost_limit=limit, **settings)
    assert isinstance(method, CTRPO)
    region = TrustRegion(policy, make_batch(policy), reduction, DAMPING)
    return method.propose(region, region.gradients(), [cost]), region


def divergence(region: TrustRegion, theta: Tensor, room: float, reduction: KLReduction) -> Tensor:
    """KL + φ(α), written down once more for autograd."""
    policy, batch = region.policy, region.batch
    params = unflatten(theta, policy.params)
    old, new = (Normal(policy.mean(batch.obs, p), torch.exp(p[0])) for p in (policy.params, params))
    kl = kl_divergence(old, new)
    ratio = torch.exp(new.log_prob(batch.action).sum(dim=1) - batch.log_prob)  # type: ignore[no-untyped-call]
    alpha = ((ratio - 1) * batch.advantage_c).mean() / (1 - 0.99)
    phi = alpha + (room - alpha) * torch.log((room - alpha) / room)
    return (kl.mean() if reduction == "mean_over_dims" else kl.sum(dim=1).mean()) + phi


@pytest.mark.parametrize("reduction", ["mean_over_dims", "sum_over_dims"])
@pytest.mark.parametrize("cost", [0.0, 10.0, 14.9])
def test_conjugate_gradients_see_the_hessian_of_the_divergence(cost: float, reduction: KLReduction) -> None:
    proposal, region = proposed(cost, 15.0, reduction)
    hessian = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
        lambda theta: divergence(region, theta, 15 - cost, reduction), region.theta
    )
    damped = hessian + DAMPING * torch.eye(len(hessian), dtype=torch.float64)
    solution = proposal.solution
    torch.testing.assert_close(solution.product[0], damped @ solution.x[0], rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(solution.x[0], torch.linalg.solve(damped, region.gradients()[0]), rtol=1e-5, atol=1e-9)
    slope = region.gradients()[1] / (1 - 0.99)
    expected = dense(region.fisher, len(slope)) + slope[:, None] * slope / (15 - cost)
    torch.testing.assert_close(damped, expected, rtol=1e-6, atol=1e-8)
    assert 0.5 * float(proposal.step @ damped @ proposal.step) == pytest.approx(KL, rel=1e-5)
    assert proposal.curvature == pytest.approx(2 * KL, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_trial_is_acceptable_within_the_divergence_and_with_no_less_reward(seed: int) -> None:
    proposal, region = proposed(10.0, 15.0)
    direction = torch.randn(len(region.theta), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    direction = direction / direction.norm() + proposal.step / proposal.step.norm()
    verdicts = set()
    for size in (0.0, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0):
        theta = region.theta + size * direction
        trial = region.evaluate(theta)
        inside = float(divergence(region, theta, 5.0, "mean_over_dims")) <= KL  # NaN beyond the barrier
        better = trial.surrogate_r >= region.old.surrogate_r
        assert proposal.acceptable(trial) == (inside and better)
        verdicts.add(inside and better)
    assert verdicts == {True, False}


@given(st.floats(-50, 50), st.floats(0.01, 50))
def test_the_barrier_is_a_divergence_that_ends_at_the_limit(alpha: float, room: float) -> None:
    found = barrier(alpha, room)
    assert found >= -1e-12
    assert math.isinf(found) == (alpha >= room)
    h = 1e-4 * room
    assert (barrier(h, room) + barrier(-h, room)) / h**2 == pytest.approx(1 / room, rel=1e-3)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_at_limit_zero_it_never_leaves_recovery(costs: list[float]) -> None:
    method, batch = start("c_trpo", critic_passes=1, cg_iterations=2, line_search_tries=1)
    assert all(method.update(batch, cost, 0.0)["recovering"] == 1 for cost in [0.0, *costs, 0.0])


def test_at_limit_fifteen_it_starts_with_the_barrier_and_follows_the_cost() -> None:
    method, batch = start("c_trpo", cost_limit=15.0)
    costs = (0.0, 14.9, 15.0, 30.0, 14.9, 0.0)
    assert [method.update(batch, cost, 0.0)["recovering"] for cost in costs] == [0, 0, 1, 1, 0, 0]


def test_with_hysteresis_recovery_ends_further_below_the_limit() -> None:
    method, batch = start("c_trpo", cost_limit=10.0, hysteresis=0.5)
    costs = (7.0, 4.9, 9.0, 10.0, 9.0, 5.0, 4.0)  # it starts in recovery
    assert [method.update(batch, cost, 0.0)["recovering"] for cost in costs] == [1, 0, 0, 1, 1, 1, 0]
    other, _ = start("c_trpo", cost_limit=10.0, hysteresis=0.5)
    other.load_state_dict(method.state_dict())  # the mode is carried over
    assert other.update(batch, 9.0, 0.0)["recovering"] == 0


def test_recovery_is_the_cost_step_within_the_plain_trust_region() -> None:
    proposal, region = proposed(15.0, 15.0)
    f, g_c = dense(region.fisher, len(region.theta)), region.gradients()[1]
    natural = torch.linalg.solve(f, g_c)
    step = -math.sqrt(2 * KL / float(g_c @ natural)) * natural
    torch.testing.assert_close(proposal.step, step, rtol=1e-4, atol=1e-8)
