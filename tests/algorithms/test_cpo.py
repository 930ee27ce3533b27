"""CPO and PCPO: the linear model of the constraint, against scipy."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sbtrpo.algorithms.base import Trial
from sbtrpo.algorithms.cpo import acceptance, optimum, published_dual, which_case
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion
from tests.algorithms.problems import KL, dense, instance, kl_of, project, pure_steps, slsqp
from tests.algorithms.samples import altered, make, make_batch, make_policy

seeds = st.integers(0, 100_000)
sizes = st.integers(2, 8)
EXACT: dict[str, Any] = {"cg_epsilon": 0.0, "cg_iterations": 200, "line_search_tries": 50}


class Problem:
    """max ⟨g, Δ⟩  s.t. c + ⟨b, Δ⟩ ≤ 0,  ½ ΔᵀFΔ ≤ δ; the plane cuts at the share t of the radius, feasible below it."""

    def __init__(self, f: Tensor, g: Tensor, b: Tensor, t: float) -> None:
        self.f, self.g, self.b, self.t = f, g, b, t
        self.x: Tensor = torch.linalg.solve(f, g)
        self.p: Tensor = torch.linalg.solve(f, b)
        self.q, self.r, self.s = float(g @ self.x), float(g @ self.p), float(b @ self.p)
        self.c = -t * math.sqrt(2 * KL * self.s)
        self.numbers = self.q, self.r, self.s, self.c, KL

    @property
    def cosine(self) -> float:
        return self.r / math.sqrt(self.q * self.s)

    def step(self, weights: tuple[float, float]) -> Tensor:
        return weights[0] * self.x + weights[1] * self.p

    def excess(self, step: Tensor) -> float:
        """By how much the linear model violates the constraint, relative to the most a step can change."""
        return (self.c + float(self.b @ step)) / math.sqrt(2 * KL * self.s)


def check_optimal(problem: Problem) -> Tensor:
    step = problem.step(optimum(*problem.numbers))
    assert kl_of(problem.f, step) <= KL * (1 + 1e-9)
    if problem.t <= -1:
        torch.testing.assert_close(step, pure_steps(problem.f, problem.g, problem.b)[1])
        return step
    assert problem.excess(step) <= 1e-9
    beta = -min(problem.t, 1.0)  # beyond 1 the plane does not touch the region
    best = slsqp(problem.f.numpy(), problem.g.numpy(), problem.b.numpy(), beta)
    assert float(problem.g @ step) >= best - 1e-6 * math.sqrt(2 * KL * problem.q)
    return step


# ---- CPO's problem -------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(sizes, seeds, st.sampled_from([-1.0, 0.0, 1.0]) | st.floats(-1.5, 1.5))
def test_corrected_step_is_the_optimum_of_cpos_problem(size: int, seed: int, t: float) -> None:
    problem = Problem(*instance(size, seed), t)
    assume(problem.t <= -1 or abs(problem.cosine) < 0.9999)
    step = check_optimal(problem)
    assert kl_of(problem.f, step) == pytest.approx(KL, rel=1e-6)  # the optimum of a linear objective uses it all
    if -1 < t < problem.cosine:
        assert problem.excess(step) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("t", [-2.0, -0.9, -0.3, 0.0, 0.3, 0.9, 2.0])
@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_corrected_step_is_the_optimum_with_parallel_gradients(factor: float, t: float) -> None:
    f, _, b = instance(5, 1)
    check_optimal(Problem(f, factor * b, b, t))


@pytest.mark.parametrize("t", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_corrected_step_without_a_reward_gradient_is_feasible_where_it_can_be(t: float) -> None:
    f, g, b = instance(5, 1)
    problem = Problem(f, torch.zeros_like(g), b, t)
    case = which_case(float(b @ b), problem.c, problem.s, KL)
    step = problem.step(optimum(*problem.numbers))
    assert torch.isfinite(step).all()
    if case in (1, 2):
        assert problem.excess(step) <= 1e-9
        assert kl_of(f, step) <= KL


@pytest.mark.parametrize("c", [-1.0, 0.0, 1.0])
def test_corrected_step_without_a_cost_gradient_is_the_reward_step(c: float) -> None:
    f, g, b = instance(5, 1)
    q = float(g @ torch.linalg.solve(f, g))
    weights = optimum(q, 0.0, 0.0, c, KL)
    torch.testing.assert_close(weights[0] * torch.linalg.solve(f, g), pure_steps(f, g, b)[0], rtol=1e-5, atol=0)
    assert weights[1] == 0.0


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, st.floats(-2, 2))
def test_the_case_says_whether_the_plane_cuts_the_region(size: int, seed: int, t: float) -> None:
    problem = Problem(*instance(size, seed), t)
    assume(abs(abs(t) - 1) > 1e-3)
    expected = (3 if t > 1 else 2) if problem.c < 0 else (0 if t < -1 else 1)
    assert which_case(float(problem.b @ problem.b), problem.c, problem.s, KL) == expected


def test_without_a_cost_gradient_the_case_depends_on_the_violation() -> None:
    assert which_case(1e-7, -1.0, 1e-7, KL) == 4
    assert which_case(0.0, 0.0, 0.0, KL) == 1
    assert which_case(0.0, 1.0, 0.0, KL) == 0


# ---- as published --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(sizes, seeds, st.floats(-0.95, -0.05))
def test_as_published_the_step_violates_the_constraint_wherever_it_could_be_met(size: int, seed: int, t: float) -> None:
    problem = Problem(*instance(size, seed), t)
    assume(0.01 < abs(problem.cosine) < 0.999)  # by how much it does is about the cosine
    assert which_case(1.0, problem.c, problem.s, KL) == 1
    assert problem.excess(problem.step(published_dual(*problem.numbers))) > 1e-3


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, st.floats(-0.95, -0.05))
def test_as_published_the_multiplier_is_negative_where_reward_and_cost_agree(size: int, seed: int, t: float) -> None:
    problem = Problem(*instance(size, seed), t)
    assume(problem.cosine < -0.05)  # more reward is less cost: the intervals of the dual are empty
    along_g, _ = published_dual(*problem.numbers)
    assert along_g < 0
    assert float(problem.g @ problem.step(published_dual(*problem.numbers))) < 0


def test_as_published_a_free_window_stalls_or_climbs_straight_on() -> None:
    f, g, b = instance(5, 1)
    g = g if Problem(f, g, b, 0.0).cosine > 0 else -g
    for sign, cosine in ((1, 1), (-1, -1)):
        problem = Problem(f, sign * g, b, 0.0)  # c = 0
        assert math.copysign(1, problem.cosine) == cosine
        step = problem.step(published_dual(*problem.numbers))
        delta_r = pure_steps(f, problem.g, b)[0]
        if cosine > 0:
            torch.testing.assert_close(step, delta_r, rtol=1e-5, atol=0)  # and its cost slope is positive
        else:
            assert step.norm() < 1e-6 * delta_r.norm()


def test_as_published_the_dual_falls_back_where_its_root_is_of_a_negative_number() -> None:
    q, r, s = 1.0, 2.0, 1.0  # r² > q s, which only inexact natural gradients give
    weights = published_dual(q, r, s, -0.01, KL)
    assert all(math.isfinite(weight) for weight in weights)


# ---- whole proposals -----------------------------------------------------------------------------------------------


def proposed(
    algo: str, cost: float, limit: float, zero: str = "", **options: Any
) -> tuple[Proposal, TrustRegion, Tensor]:
    """What a method proposes at a small policy, without the noise of float32 or of few iterations."""
    policy = make_policy(0, 3, 2, (4,))
    batch = make_batch(policy)
    if zero:
        batch = altered(batch, **{zero: torch.zeros_like(batch.advantage_r)})
    method = make(algo, policy, cost_limit=limit, kl_reduction="sum_over_dims", **EXACT, **options)
    region = TrustRegion(policy, batch, "sum_over_dims", method.settings.cg_damping)
    gradients = region.gradients()
    return method.propose(region, gradients, [cost]), region, gradients  # type: ignore[attr-defined]


@pytest.mark.parametrize("t", [-2.0, -0.9, -0.3, 0.0, 0.3, 0.9, 2.0])
def test_cpos_proposal_solves_the_problem_of_the_dense_fisher_matrix(t: float) -> None:
    _, region, (g, b) = proposed("cpo", 1.0, 1.0)
    f = dense(region.fisher, len(g))
    reach = math.sqrt(2 * KL * float(b @ torch.linalg.solve(f, b)))
    proposal, _, _ = proposed("cpo", 1 - t * reach, 1.0, fidelity="corrected")
    problem = Problem(f, g, b, t)
    expected = problem.step(optimum(*problem.numbers))
    torch.testing.assert_close(proposal.step, expected, rtol=1e-4, atol=1e-6)
    assert proposal.facts["case"] == (0 if t < -1 else 1 if t <= 0 else 2 if t < 1 else 3)


@pytest.mark.parametrize("excess", [-100.0, -0.05, -0.01, 0.0, 0.01, 0.05, 5.0])
def test_pcpos_corrected_step_is_the_projection_of_the_reward_step(excess: float) -> None:
    proposal, region, (g, b) = proposed("pcpo", 100 + excess, 100.0, fidelity="corrected")
    f = dense(region.fisher, len(g))
    reward_step = pure_steps(f, g, b)[0]
    expected = project(f, reward_step, b, excess)
    scale = float(expected.norm())
    torch.testing.assert_close(proposal.step / scale, expected / scale, rtol=1e-4, atol=1e-5)
    if excess == -100.0:
        torch.testing.assert_close(proposal.step, reward_step, rtol=1e-4, atol=1e-7)
    else:
        assert excess + float(b @ proposal.step) <= 1e-6 * max(1, excess)


def test_pcpos_published_step_runs_along_the_plain_gradient() -> None:
    proposal, region, (g, _) = proposed("pcpo", 0.0, 100.0)
    f = dense(region.fisher, len(g))
    q = float(g @ torch.linalg.solve(f, g))
    torch.testing.assert_close(proposal.step, math.sqrt(2 * KL / q) * g, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("cost", "limit"), [(0.0, 0.0), (10.0, 0.0), (0.0, 25.0), (100.0, 25.0)])
@pytest.mark.parametrize("zero", ["advantage_r", "advantage_c"])
@pytest.mark.parametrize("algo", ["cpo", "pcpo"])
def test_corrected_steps_are_finite_without_a_gradient(algo: str, zero: str, cost: float, limit: float) -> None:
    proposal, _, _ = proposed(algo, cost, limit, zero, fidelity="corrected")
    assert torch.isfinite(proposal.step).all()


@pytest.mark.parametrize(("zero", "cost"), [("advantage_r", 0.0), ("advantage_r", 10.0), ("advantage_c", 0.0)])
def test_pcpo_as_published_divides_by_zero_and_the_update_is_skipped(zero: str, cost: float) -> None:
    proposal, region, _ = proposed("pcpo", cost, 0.0, zero)
    assert torch.isnan(proposal.step).all()
    method = make("pcpo", region.policy)
    before = region.theta.clone()
    found = method.update(region.batch, cost, 0.0)
    assert found["skipped"] == 1
    assert torch.equal(before, torch.cat([tensor.reshape(-1) for tensor in region.policy.params]))


@pytest.mark.parametrize(
    ("case", "c", "change", "accepted"),
    [
        (0, 5.0, (-1.0, -0.1, 0.01), True),  # cost falls: a loss of reward is no matter
        (1, 5.0, (-1.0, 0.1, 0.005), False),  # cost must not rise beyond the limit
        (1, 0.0, (-1.0, 0.0, 0.005), True),
        (2, -5.0, (-1.0, 0.0, 0.005), False),  # where the start is feasible reward must not fall
        (2, -5.0, (1.0, 4.9, 0.005), True),  # and cost may rise by what is left
        (3, -5.0, (1.0, 5.1, 0.005), False),
        (4, -5.0, (0.0, 0.0, 0.02), False),  # the KL counts in every case
        (0, 5.0, (1.0, -1.0, 0.02), False),
    ],
)
def test_the_line_search_asks_what_the_case_needs(
    case: int, c: float, change: tuple[float, float, float], accepted: bool
) -> None:
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "sum_over_dims", 0.1)
    old, target_kl = region.old, make("cpo", policy).settings.target_kl
    trial = Trial(change[2], (old.surrogate_r + change[0], old.surrogate_c + change[1]))
    assert acceptance(region, c, case, target_kl)(trial) is accepted
