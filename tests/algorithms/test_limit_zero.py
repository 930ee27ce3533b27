"""What each method comes down to where no cost at all is allowed."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.first_order import FirstOrderMethod
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion
from tests.algorithms.problems import KL, dense, pure_steps
from tests.algorithms.samples import altered, make, make_batch, make_policy, start, theta_of

costs = st.lists(st.floats(0, 200), min_size=1, max_size=20)


def cost_step(batch: Batch) -> Tensor:
    """Where TRPO leads that knows the cost alone."""
    method, _ = start("trpo", critic_passes=1)
    method.update(altered(batch, advantage_r=-batch.advantage_c), 0.0, 0.0)
    return theta_of(method)


def proposed(algo: str, cost: float, sign: float = 1.0, **options: Any) -> tuple[Proposal, TrustRegion]:
    """In float64, with as many iterations as it takes; `sign` turns the rewards round."""
    policy = make_policy(0, 3, 2, (4,))
    method = make(algo, policy, cost_limit=0.0, cg_epsilon=0.0, cg_iterations=300, **options)
    batch = make_batch(policy)
    batch = altered(batch, advantage_r=sign * batch.advantage_r)
    region = TrustRegion(policy, batch, "mean_over_dims", method.settings.cg_damping)
    return method.propose(region, region.gradients(), [cost]), region  # type: ignore[attr-defined]


def first_slopes(algo: str, cost: float, progress: float = 0.0) -> tuple[NDArray[Any], Batch]:
    """Slopes of the loss in the ratios before the first step, where all of them are 1."""
    method, batch = start(algo, cost_limit=0.0)
    assert isinstance(method, FirstOrderMethod)
    samples = method.start(batch).samples
    fixed = method.prepare(samples, [cost], progress)
    return method.slopes(method.actor.see(samples, method.actor.log_std, fixed)).ratio, batch


# ---- multipliers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["ppo_lag", "trpo_lag", "rcpo", "appo", "focops", "cup"])
@settings(deadline=None, max_examples=20)
@given(costs)
def test_multipliers_never_fall(algo: str, costs: list[float]) -> None:
    method, _ = start(algo, cost_limit=0.0)
    found = [0.001, *(method.lagrange(cost)[0] for cost in costs)]
    assert all(before <= after for before, after in itertools.pairwise(found))


@pytest.mark.parametrize("algo", ["ppo_lag", "trpo_lag", "rcpo", "appo"])
def test_reported_multipliers_grow_from_update_to_update(algo: str) -> None:
    method, batch = start(algo, cost_limit=0.0, policy_passes=1, critic_passes=1)
    found = [method.update(batch, cost, 0.0)["multiplier"] for cost in (0.0, 30.0, 10.0, 0.0, 0.0)]
    assert found[0] == 0.001
    assert all(before < after for before, after in itertools.pairwise(found))


def test_cppo_pids_integral_has_no_bound() -> None:
    method, _ = start("cppo_pid", cost_limit=0.0)
    found = [method.lagrange(50.0)[0] for _ in range(1000)]
    assert found[-1] > 0.01 * 50 * 1000
    assert method.lagrange(0.0)[0] > 0.99 * found[-1]  # and does not come down


@pytest.mark.parametrize(("algo", "fidelity", "bound", "updates"), [
    ("focops", "paper", 2.0, 60), ("cup", "paper", 0.2, 7), ("cup", "corrected", 2.0, 60),
])  # fmt: skip
def test_steady_cost_pins_bounded_multipliers(algo: str, fidelity: str, bound: float, updates: int) -> None:
    method, _ = start(algo, cost_limit=0.0, fidelity=fidelity)
    found = [method.lagrange(30.0)[0] for _ in range(updates + 20)]
    assert found[updates // 2] < bound
    assert found[updates:] == [bound] * 20


# ---- trust regions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.0, 1e-3, 10.0])
def test_c_trpo_minimises_cost_even_where_there_is_none(cost: float) -> None:
    method, batch = start("c_trpo", cost_limit=0.0)
    found = method.update(batch, cost, 0.0)
    assert found["surrogate_c_change"] < 0
    torch.testing.assert_close(theta_of(method), cost_step(batch), rtol=1e-5, atol=1e-6)
    other, _ = start("c_trpo", cost_limit=0.0)  # the reward has no say
    other.update(altered(batch, advantage_r=-5 * batch.advantage_r), cost, 0.0)
    torch.testing.assert_close(theta_of(method), theta_of(other), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("as_published", [True, False])
@pytest.mark.parametrize("cost", [1.0, 30.0])
def test_cpo_takes_the_pure_cost_step_while_there_is_cost(cost: float, as_published: bool) -> None:
    method, batch = start("cpo", cost_limit=0.0, cpo_as_published=as_published)
    assert method.update(batch, cost, 0.0)["case"] == 0
    torch.testing.assert_close(theta_of(method), cost_step(batch), rtol=1e-5, atol=1e-6)


def test_cpo_may_mend_no_more_cost_than_its_surrogate_can_change() -> None:
    _, region = proposed("cpo", 0.0)
    b = region.gradients()[1]
    s = float(b @ torch.linalg.solve(dense(region.fisher, len(b)), b))
    edge = math.sqrt(2 * KL * s)
    assert edge < 0.5  # an episode's cost is seldom so small
    assert [proposed("cpo", cost)[0].facts["case"] for cost in (0.0, 0.99 * edge, 1.01 * edge)] == [1, 1, 0]


def test_cpo_as_published_stalls_in_a_window_without_cost() -> None:
    _, region = proposed("cpo", 0.0)
    g, b = region.gradients()
    agree = -math.copysign(1.0, float(g @ torch.linalg.solve(dense(region.fisher, len(b)), b)))
    for sign in (agree, -agree):
        proposal, region = proposed("cpo", 0.0, sign)
        g, b = region.gradients()
        reward_step = pure_steps(dense(region.fisher, len(b)), g, b)[0]
        if sign == agree:  # more reward would be less cost, yet λ is hugely negative
            assert proposal.step.norm() < 1e-5 * reward_step.norm()
        else:  # the reward step, which raises the cost: the line search refuses it
            torch.testing.assert_close(proposal.step, reward_step, rtol=1e-4, atol=1e-7)
            assert float(b @ proposal.step) > 0
            assert not proposal.acceptable(region.evaluate(region.theta + proposal.step))


@pytest.mark.parametrize("fidelity", ["paper", "corrected"])
def test_pcpo_is_left_with_a_cost_step(fidelity: str) -> None:
    method, batch = start("pcpo", cost_limit=0.0, fidelity=fidelity, kl_reduction="mean_over_dims", cg_epsilon=1e-6)
    before = theta_of(method)
    found = method.update(batch, 30.0, 0.0)
    assert 0 < found["accepted_step"] < 0.05  # the projection is that much too long
    applied, expected = theta_of(method) - before, cost_step(batch) - before
    assert float(applied @ expected / (applied.norm() * expected.norm())) > 0.99


@pytest.mark.parametrize(("cost", "reward"), [(0.0, True), (0.02, False), (30.0, False)])
def test_crpo_pursues_reward_in_windows_without_cost_only(cost: float, reward: bool) -> None:
    method, batch = start("crpo", cost_limit=0.0)
    assert method.update(batch, cost, 0.0)["feasible"] == reward
    assert torch.allclose(theta_of(method), cost_step(batch), atol=1e-6) is not reward


def test_pcrpo_never_pursues_reward_alone() -> None:
    method, batch = start("pcrpo", cost_limit=0.0, critic_passes=1)
    assert [method.update(batch, cost, 0.0)["regime"] for cost in (0.0, 5.0, 5.1, 100.0)] == [0, 0, -1, -1]


# ---- penalties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algo", "progress", "weight"), [("p3o", 0.0, 10.0), ("p3o", 0.9, 10.0), ("c3po", 0.0, 5.0),
                                                          ("c3po", 0.5, 27.5), ("c3po", 1.0, 50.0)])  # fmt: skip
def test_hinges_are_fixed_penalties_while_there_is_cost(algo: str, progress: float, weight: float) -> None:
    slopes, batch = first_slopes(algo, 10.0, progress)
    expected = weight * batch.advantage_c.numpy() - batch.advantage_r.numpy()
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("algo", "share"), [("p3o", 0.01), ("c3po", 1.0)])
@pytest.mark.parametrize("cost", [0.0, 10.0])
def test_hinges_end_where_the_surrogate_has_made_up_for_the_cost(algo: str, share: float, cost: float) -> None:
    method, batch = start(algo, cost_limit=0.0)
    assert isinstance(method, FirstOrderMethod)
    for offset, active in ((0.01, True), (-0.01, False)):
        # At ratios of 1 the surrogate is the mean advantage.
        advantage = batch.advantage_c - batch.advantage_c.mean() - share * cost + offset
        samples = method.start(altered(batch, advantage_c=advantage)).samples
        fixed = method.prepare(samples, [cost], 0.0)
        slopes = method.slopes(method.actor.see(samples, method.actor.log_std, fixed)).ratio
        assert (np.abs(slopes + batch.advantage_r.numpy()).max() > 1e-3) == active


def test_appos_factor_has_the_violation_in_it() -> None:
    method, batch = start("appo", cost_limit=0.0, policy_passes=1)
    found = method.update(batch, 30.0, 0.0)
    assert found["multiplier"] == pytest.approx(0.201)
    assert found["penalty"] == pytest.approx(0.201 + 0.1 * 30)
