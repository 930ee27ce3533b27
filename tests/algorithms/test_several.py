"""SB-TRPO's step for several costs: its promises, its optimality against scipy, and gradients that do not get along."""

import math
from collections.abc import Callable
from random import Random
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from sbtrpo.algorithms import sb_trpo
from sbtrpo.algorithms.several import JointStep, joint_step
from tests.algorithms.problems import KL, best_reward, largest_share, spd

Array = NDArray[np.float64]
Solver = Literal["convex", "exact"]
SOLVERS: tuple[Solver, Solver] = ("convex", "exact")
RADIUS = math.sqrt(2 * KL)
solvers = st.sampled_from(SOLVERS)


class Problem:
    """A dense Fisher matrix, gradients (C + 1, P), and how a step of theirs is judged."""

    def __init__(self, f: Array, gradients: Array) -> None:
        self.f, self.gradients = f, gradients
        self.natural = np.linalg.solve(f, gradients.T).T
        self.gram = gradients @ self.natural.T
        ball = np.linalg.solve(np.linalg.cholesky(f), gradients.T).T  # where the trust region is a ball
        lengths = np.linalg.norm(ball, axis=1, keepdims=True)
        unit = ball / np.where(lengths > 0, lengths, 1.0)
        self.r, self.u = unit[0], -unit[1:]

    def solve(self, betas: ArrayLike, solver: Solver) -> JointStep:
        return joint_step(self.gram, betas, KL, solver)

    def delta(self, step: JointStep) -> Array:
        return np.asarray(step.weights @ self.natural)

    def kl(self, step: JointStep) -> float:
        delta = self.delta(step)
        return 0.5 * float(delta @ self.f @ delta)

    def shares(self, step: JointStep) -> Array:
        """(C + 1,) the rise of reward and the falls of the costs, to first order, as shares of the best ones."""
        best = RADIUS * np.sqrt(np.diagonal(self.gram))
        change = self.gradients @ self.delta(step)
        change[1:] *= -1
        return np.asarray(change / np.where(best > 0, best, 1.0))

    def with_gradients(self, change: Callable[[Array], Array]) -> "Problem":
        return Problem(self.f, change(self.gradients.copy()))


def make(size: int, costs: int, seed: int, agreement: float = 0.0) -> Problem:
    """Random gradients; the more agreement, the more the costs' have in common."""
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((costs + 1, size))
    gradients[1:] += agreement * rng.standard_normal(size)
    return Problem(spd(size, seed + 1).numpy(), gradients)


@st.composite
def problems(draw: st.DrawFn, costs: tuple[int, ...] = (1, 2, 3, 5)) -> tuple[Problem, Array]:
    """A problem, and β for each of its costs."""
    count = draw(st.sampled_from(costs))
    problem = make(
        draw(st.integers(3, 8)), count, draw(st.integers(0, 100_000)), draw(st.sampled_from([0.0, 1.0, 3.0]))
    )
    one = st.floats(1e-3, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    betas = draw(st.lists(one, min_size=count, max_size=count) | one.map(lambda beta: [beta] * count))
    return problem, np.array(betas)


# ---- promises ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(problems(), solvers)
def test_step_stays_in_the_trust_region_and_keeps_the_share_it_reports(
    given: tuple[Problem, Array], solver: Solver
) -> None:
    problem, betas = given
    step = problem.solve(betas, solver)
    assert 0 <= step.kept <= 1
    assert problem.kl(step) <= KL * (1 + 1e-8)
    falls = problem.shares(step)[1:]
    np.testing.assert_allclose(step.decreases, falls, rtol=0, atol=1e-8)
    assert (falls >= step.kept * betas - (1e-8 if step.kept > 0 else 1e-4)).all()


@settings(deadline=None, max_examples=100)
@given(problems())
def test_exact_step_and_its_share_are_not_worse_than_slsqp(given: tuple[Problem, Array]) -> None:
    problem, betas = given
    step = problem.solve(betas, "exact")
    room = largest_share(problem.u, betas) if betas.any() else math.inf
    assert step.kept >= min(1.0, room) - 1e-6
    assert math.isnan(step.mu)
    # SLSQP misses promises by 1e-10, which earns it the square root of that where there is hardly any room.
    tolerance = 1e-6 if room > 1.001 else 1e-4
    gain = problem.shares(step)[0]
    assert gain >= best_reward(problem.r, problem.u, step.kept * betas) - tolerance


@settings(deadline=None, max_examples=150)
@given(problems())
def test_convex_step_has_the_least_share_of_the_joint_step_and_never_earns_more_than_the_exact_one(
    given: tuple[Problem, Array],
) -> None:
    problem, betas = given
    convex, exact = (problem.solve(betas, solver) for solver in SOLVERS)
    assert convex.kept == exact.kept
    assert problem.shares(convex)[0] <= problem.shares(exact)[0] + 1e-8
    if math.isnan(convex.mu):  # no joint step
        np.testing.assert_array_equal(convex.weights, exact.weights)
        return
    assert 0 <= convex.mu <= 1
    if convex.mu > 1e-4:
        d = problem.delta(convex) @ np.linalg.cholesky(problem.f) / RADIUS
        joint = (d - (1 - convex.mu) * problem.r) / convex.mu
        assert np.linalg.norm(joint) == pytest.approx(1, abs=1e-6)
        for smaller in np.linspace(0, convex.mu - 1e-4, 20):
            assert (problem.u @ ((1 - smaller) * problem.r + smaller * joint) < convex.kept * betas).any()


@settings(deadline=None, max_examples=150)
@given(problems(costs=(2, 3, 5)))
def test_where_promises_conflict_both_solvers_take_the_joint_cost_step(given: tuple[Problem, Array]) -> None:
    problem, betas = given
    convex, exact = (problem.solve(betas, solver) for solver in SOLVERS)
    if 0 < exact.kept < 1:
        assert problem.kl(exact) == pytest.approx(KL, rel=1e-6)
        np.testing.assert_allclose(problem.delta(convex), problem.delta(exact), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            problem.delta(exact), problem.delta(problem.solve(exact.kept * betas, "convex")), rtol=1e-3, atol=1e-5
        )


@settings(deadline=None, max_examples=100)
@given(problems(), solvers, st.data())
def test_scale_of_a_gradient_does_not_matter(given: tuple[Problem, Array], solver: Solver, data: st.DataObject) -> None:
    problem, betas = given
    scale = np.array(data.draw(st.lists(st.floats(1e-3, 1e3), min_size=len(betas) + 1, max_size=len(betas) + 1)))
    scaled = problem.with_gradients(lambda g: g * scale[:, None])
    one, other = problem.solve(betas, solver), scaled.solve(betas, solver)
    np.testing.assert_allclose(scaled.delta(other), problem.delta(one), rtol=1e-5, atol=1e-6)
    assert other.kept == pytest.approx(one.kept, abs=1e-8)
    assert other.mu == pytest.approx(one.mu, abs=1e-6, nan_ok=True)


@settings(deadline=None, max_examples=100)
@given(problems(costs=(2, 3, 5)), solvers, st.randoms(use_true_random=False))
def test_order_of_the_costs_does_not_matter(given: tuple[Problem, Array], solver: Solver, random: Random) -> None:
    problem, betas = given
    order = list(range(len(betas)))
    random.shuffle(order)
    rows = [0, *(1 + i for i in order)]
    step = problem.solve(betas, solver)
    other = problem.with_gradients(lambda g: g[rows]).solve(betas[order], solver)
    np.testing.assert_allclose(other.weights, step.weights[rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.decreases, step.decreases[order], rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(problems(), solvers)
def test_beta_zero_raises_no_cost_and_is_always_kept(given: tuple[Problem, Array], solver: Solver) -> None:
    problem, _ = given
    step = problem.solve(0.0, solver)
    assert step.kept == 1
    assert step.decreases.min() >= (-1e-4 if math.isnan(step.mu) else -1e-8)
    assert solver == "convex" or problem.shares(step)[0] >= -1e-8


@pytest.mark.parametrize("beta", [5e-324, 1e-300, 1e-12])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_least_beta_asks_for_hardly_more_than_none(beta: float, solver: Solver) -> None:
    problem = make(5, 2, 4, agreement=1.0)
    least, none = problem.solve(beta, solver), problem.solve(0.0, solver)
    assert least.kept == none.kept == 1
    np.testing.assert_allclose(least.weights, none.weights, rtol=1e-6, atol=1e-9)


@settings(deadline=None, max_examples=100)
@given(problems(), solvers)
def test_beta_one_cuts_the_least_cut_cost_by_as_much_as_possible(given: tuple[Problem, Array], solver: Solver) -> None:
    problem, betas = given
    step = problem.solve(1.0, solver)
    share = largest_share(problem.u, np.ones_like(betas))
    assert step.kept == pytest.approx(share, abs=1e-6)
    assert step.decreases.min() == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("costs", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("cosine", [0.0, 0.125, 0.3])
@pytest.mark.parametrize("beta", [0.25, 0.75])
@pytest.mark.parametrize("solver", SOLVERS)
def test_costs_of_equal_cosines_share_the_trust_region(costs: int, cosine: float, beta: float, solver: Solver) -> None:
    gram = np.eye(costs + 1)
    gram[1:, 1:] += cosine * (1 - np.eye(costs))
    step = joint_step(gram, beta, KL, solver)
    room = math.sqrt((1 + (costs - 1) * cosine) / costs)  # of each, if all get the same
    assert step.kept == pytest.approx(min(1.0, room / beta))
    np.testing.assert_allclose(step.decreases, min(beta, room), atol=1e-9)
    gain = step.weights[0] / RADIUS
    left = {"exact": math.sqrt(max(0.0, 1 - (beta / room) ** 2)), "convex": max(0.0, 1 - beta / room)}
    assert gain == pytest.approx(left[solver], abs=1e-7)


# ---- one cost ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(problems(costs=(1,)), solvers)
def test_for_one_cost_the_step_is_that_of_the_paper(given: tuple[Problem, Array], solver: Solver) -> None:
    problem, betas = given
    large = problem.with_gradients(lambda g: 1e4 * g)  # beside which the paper's 1e-8 in denominators is nothing
    step = large.solve(betas, solver)
    settings = sb_trpo.SBTRPOSettings(target_kl=KL, beta=float(betas[0]), solver=solver)
    gradients, natural = torch.from_numpy(large.gradients), torch.from_numpy(large.natural)
    expected = sb_trpo.combine(gradients, natural, torch.from_numpy(np.diagonal(large.gram).copy()), settings)
    assert step.kept == 1
    assert step.mu == pytest.approx(expected.facts["mu"], abs=1e-9, nan_ok=True)
    np.testing.assert_allclose(large.delta(step), expected.step.numpy(), rtol=1e-7, atol=1e-8)


# ---- gradients that are parallel, opposed, or not there ------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(problems(), solvers)
def test_a_cost_without_a_gradient_constrains_nothing(given: tuple[Problem, Array], solver: Solver) -> None:
    problem, betas = given
    padded = problem.with_gradients(lambda g: np.insert(g, 1, 0.0, axis=0))
    step, other = problem.solve(betas, solver), padded.solve(np.insert(betas, 0, 1.0), solver)
    assert other.weights[1] == other.decreases[0] == 0
    assert other.kept == pytest.approx(step.kept)
    np.testing.assert_allclose(padded.delta(other), problem.delta(step), rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(problems(), solvers)
def test_a_cost_that_is_listed_twice_counts_once(given: tuple[Problem, Array], solver: Solver) -> None:
    problem, betas = given
    twice = problem.with_gradients(lambda g: np.vstack([g, 3 * g[-1]]))
    step, other = problem.solve(betas, solver), twice.solve(np.append(betas, betas[-1]), solver)
    assert other.kept == pytest.approx(step.kept, abs=1e-8)
    np.testing.assert_allclose(twice.delta(other), problem.delta(step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("betas", [[0.0, 0.0], [0.5, 0.5], [0.0, 0.7], [1.0, 0.1]])
@pytest.mark.parametrize("error", [0.0, 1e-13, 1e-7])
def test_opposed_costs_stay_where_they_are_and_reward_takes_what_is_across(
    betas: list[float], solver: Solver, error: float
) -> None:
    problem = make(5, 1, 3)
    noise = np.random.default_rng(0).standard_normal(5)
    opposed = problem.with_gradients(lambda g: np.vstack([g, -2 * g[1] + error * noise]))
    step = opposed.solve(betas, solver)
    assert step.kept == (1 if betas == [0.0, 0.0] else 0)
    assert math.isnan(step.mu)
    across = problem.r - (problem.r @ problem.u[0]) * problem.u[0]
    np.testing.assert_allclose(step.decreases, 0, atol=1e-6)
    assert opposed.shares(step)[0] == pytest.approx(np.linalg.norm(across), abs=1e-6)
    assert opposed.kl(step) == pytest.approx(KL, rel=1e-6)


@settings(deadline=None, max_examples=100)
@given(problems(), solvers)
def test_without_a_reward_gradient_the_step_is_no_longer_than_the_promises_ask(
    given: tuple[Problem, Array], solver: Solver
) -> None:
    problem, betas = given
    step = problem.with_gradients(lambda g: np.vstack([0 * g[:1], g[1:]])).solve(betas, solver)
    assert step.weights[0] == 0
    room = largest_share(problem.u, betas) if betas.any() else math.inf
    if room > 1e-3:
        assert problem.kl(step) == pytest.approx(KL * min(1.0, 1 / room) ** 2, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("costs", [1, 2, 5])
def test_without_cost_gradients_the_step_is_the_reward_step_and_without_any_there_is_none(
    costs: int, solver: Solver
) -> None:
    gram = np.zeros((costs + 1, costs + 1))
    nothing = joint_step(gram, 0.75, KL, solver)
    assert not nothing.weights.any()
    gram[0, 0] = 4.0
    step = joint_step(gram, 0.75, KL, solver)
    np.testing.assert_allclose(step.weights, [RADIUS / 2, *[0.0] * costs])
    assert nothing.kept == step.kept == 1
    assert math.isnan(step.mu) if solver == "exact" else step.mu == 0


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.75, 1.0])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_reward_parallel_to_a_cost_or_opposed_to_it(beta: float, sign: float, solver: Solver) -> None:
    problem = make(6, 2, 8, agreement=1.0).with_gradients(lambda g: np.vstack([5 * sign * g[1:2], g[1:]]))
    step = problem.solve(beta, solver)
    assert problem.kl(step) <= KL * (1 + 1e-8)
    assert (step.decreases >= step.kept * beta - 1e-8).all()
    gain = best_reward(problem.r, problem.u, np.full(2, step.kept * beta))
    assert problem.shares(step)[0] <= gain + 1e-4
    assert solver == "convex" or problem.shares(step)[0] >= gain - 1e-4


@settings(deadline=None, max_examples=100)
@given(problems(costs=(2, 3, 5)), solvers, st.sampled_from([1e-3, 1e-5, 1e-7, 1e-9, 1e-12]))
def test_costs_that_are_nearly_parallel_keep_their_promises(
    given: tuple[Problem, Array], solver: Solver, error: float
) -> None:
    problem, betas = given
    noise = np.random.default_rng(1).standard_normal(problem.gradients.shape[1])
    near = problem.with_gradients(lambda g: np.vstack([g[:2], 2 * g[1] + error * noise, g[3:]]))
    step = near.solve(betas, solver)
    assert near.kl(step) <= KL * (1 + 1e-5)
    assert (near.shares(step)[1:] >= step.kept * betas - (1e-8 if step.kept > 0 else 1e-4)).all()


@settings(deadline=None, max_examples=100)
@given(problems(), solvers, st.sampled_from([1e-8, 1e-4, 1e-2, 0.3]))
def test_promises_are_those_of_the_matrix_even_where_it_is_not_symmetric_or_positive(
    given: tuple[Problem, Array], solver: Solver, error: float
) -> None:
    problem, betas = given
    lengths = np.sqrt(np.diagonal(problem.gram))
    noise = np.random.default_rng(2).standard_normal(problem.gram.shape) * (1 - np.eye(len(lengths)))
    gram = problem.gram + error * noise * lengths * lengths[:, None]
    step = joint_step(gram, betas, KL, solver)
    symmetric = (gram + gram.T) / 2
    assert step.weights @ symmetric @ step.weights <= 2 * KL * (1 + 1e-6)
    falls = -(symmetric @ step.weights)[1:] / (RADIUS * lengths[1:])
    assert (falls >= step.kept * betas - (1e-8 if step.kept > 0 else 1e-4)).all()


def test_numbers_that_are_none_make_a_step_that_is_none() -> None:
    gram = np.eye(3)
    gram[0, 1] = math.nan
    step = joint_step(gram, 0.5, KL, "exact")
    assert np.isnan([*step.weights, *step.decreases, step.kept, step.mu]).all()


@pytest.mark.parametrize(
    ("gram", "betas", "advice"),
    [
        (np.eye(14), 0.5, "12 costs at most, got 13"),
        (np.eye(1), [], "a row for reward and one for each cost"),
        (np.ones((3, 2)), 0.5, "must be square"),
        (np.eye(3), 1.5, r"in \[0, 1\]"),
        (np.eye(3), math.nan, r"in \[0, 1\]"),
        (np.eye(3), [0.5, 0.5, 0.5], "one for each of the 2 costs"),
    ],
)
def test_what_cannot_be_solved_is_refused_with_advice(gram: Array, betas: ArrayLike, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        joint_step(gram, betas, KL)
