import dataclasses
import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sbtrpo.algorithms.base import Batch, Diagnostics, Trial
from sbtrpo.algorithms.sb_trpo import SBTRPO, Direction, SBTRPOSettings, combine, safety_share
from sbtrpo.algorithms.trust_region import KLReduction, TrustRegion
from sbtrpo.config import TrainConfig
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from tests.algorithms.problems import KL, instance, kl_of, pure_steps, slsqp
from tests.algorithms.samples import COMMON, altered, make_batch, make_policy, start, theta_of

CONFIG = TrainConfig(target_kl=KL)
SETTINGS = SBTRPOSettings(target_kl=KL)
Solver = Literal["convex", "exact"]
betas = st.floats(0, 1)
seeds = st.integers(0, 100_000)
sizes = st.integers(2, 8)


def solve(f: Tensor, g_r: Tensor, g_c: Tensor, beta: float, solver: Solver = "convex") -> Direction:
    """The step with exact natural gradients."""
    gradients = torch.stack([g_r, g_c])
    natural = torch.linalg.solve(f, gradients.T).T
    settings = dataclasses.replace(SETTINGS, beta=beta, solver=solver)
    return combine(gradients, natural, (natural * (natural @ f)).sum(dim=1), settings)


# ---- the lemmas: the paper's convex combination ------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, betas)
def test_update_stays_in_the_trust_region_and_reduces_cost_by_at_least_beta(size: int, seed: int, beta: float) -> None:
    f, g_r, g_c = instance(size, seed)
    _, delta_c = pure_steps(f, g_r, g_c)
    best = float(g_c @ delta_c)
    found = solve(f, g_r, g_c, beta)
    assert kl_of(f, found.step) <= KL * (1 + 1e-6)
    assert float(g_c @ found.step) <= beta * best + 1e-6 * abs(best)


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, betas)
def test_mu_is_the_least_share_that_cuts_cost_enough(size: int, seed: int, beta: float) -> None:
    f, g_r, g_c = instance(size, seed)
    delta_r, delta_c = pure_steps(f, g_r, g_c)
    mu, best = solve(f, g_r, g_c, beta).facts["mu"], float(g_c @ delta_c)
    assert 0 <= mu <= 1
    for smaller in np.linspace(0, max(mu - 1e-4, 0), 20) if mu > 1e-4 else []:
        assert float(g_c @ ((1 - smaller) * delta_r + smaller * delta_c)) > beta * best


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, betas)
def test_mu_and_kl_have_their_closed_forms(size: int, seed: int, beta: float) -> None:
    f, g_r, g_c = instance(size, seed)
    found = solve(f, g_r, g_c, beta)
    x = found.facts["cosine"]
    inverse = torch.linalg.inv(f)
    assert x == pytest.approx(float(g_r @ inverse @ g_c / torch.sqrt((g_r @ inverse @ g_r) * (g_c @ inverse @ g_c))))
    assume(x > -0.999)
    if x >= -beta:
        assert found.facts["mu"] == pytest.approx((x + beta) / (1 + x), abs=1e-4)
        kl = KL * (beta**2 + (1 - beta) ** 2 * (1 - x) / (1 + x))
        assert kl_of(f, found.step) == pytest.approx(kl, rel=1e-3, abs=1e-9)
    else:
        assert found.facts["mu"] == 0
        assert kl_of(f, found.step) == pytest.approx(KL, rel=1e-5)


@settings(deadline=None, max_examples=50)
@given(sizes, seeds)
def test_beta_one_is_the_pure_cost_step(size: int, seed: int) -> None:
    f, g_r, g_c = instance(size, seed)
    assume(solve(f, g_r, g_c, 1.0).facts["cosine"] > -0.99)
    solvers: tuple[Solver, Solver] = ("convex", "exact")
    for solver in solvers:
        step = solve(f, g_r, g_c, 1.0, solver).step
        torch.testing.assert_close(step, pure_steps(f, g_r, g_c)[1], rtol=1e-4, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(sizes, seeds, betas, st.sampled_from(["convex", "exact"]))
def test_without_a_cost_gradient_the_step_is_the_pure_reward_step(
    size: int, seed: int, beta: float, solver: Solver
) -> None:
    f, g_r, g_c = instance(size, seed)
    found = solve(f, g_r, torch.zeros_like(g_c), beta, solver)
    torch.testing.assert_close(found.step, pure_steps(f, g_r, g_c)[0], rtol=1e-5, atol=1e-8)


@settings(deadline=None, max_examples=50)
@given(sizes, seeds, betas, st.sampled_from(["convex", "exact"]))
def test_without_a_reward_gradient_the_step_is_beta_of_the_cost_step(
    size: int, seed: int, beta: float, solver: Solver
) -> None:
    f, g_r, g_c = instance(size, seed)
    found = solve(f, torch.zeros_like(g_r), g_c, beta, solver)
    torch.testing.assert_close(found.step, beta * pure_steps(f, g_r, g_c)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", ["convex", "exact"])
def test_without_any_gradient_there_is_no_step(solver: Solver) -> None:
    f, g_r, _ = instance(4, 0)
    zero = torch.zeros_like(g_r)
    assert not solve(f, zero, zero, 0.75, solver).step.any()


@settings(deadline=None, max_examples=50)
@given(sizes, seeds, betas, st.floats(-1e-3, 1e-3))
def test_opposed_gradients_do_not_explode_with_inexact_natural_gradients(
    size: int, seed: int, beta: float, error: float
) -> None:
    f, _, g_c = instance(size, seed)
    gradients = torch.stack([-5 * g_c, g_c])
    natural = torch.linalg.solve(f, gradients.T).T
    natural[0] *= 1 + error
    natural[0] += error * natural[0].roll(1)
    found = combine(gradients, natural, (natural * (natural @ f)).sum(dim=1), dataclasses.replace(SETTINGS, beta=beta))
    assert 0 <= found.facts["mu"] <= 1
    assert kl_of(f, found.step) <= 1.01 * KL
    assert float(g_c @ found.step) <= 0.99 * beta * float(g_c @ pure_steps(f, g_c, g_c)[1])


@given(st.floats(-10, 10), st.floats(-10, 0), betas)
def test_the_share_is_always_a_share(cost_of_r: float, cost_of_c: float, beta: float) -> None:
    assert 0 <= safety_share(cost_of_r, cost_of_c, beta) <= 1


def test_the_bare_formula_would_explode_where_the_share_does_not() -> None:
    assert safety_share(-1.0001, -1.0, 0.75) == 0  # (−1.0001 + 0.75) / (−1.0001 + 1) = 2501


# ---- the exact solution ------------------------------------------------------------------------------------------


def check_exact(f: Tensor, g_r: Tensor, g_c: Tensor, beta: float) -> Direction:
    found = solve(f, g_r, g_c, beta, "exact")
    delta_r, delta_c = pure_steps(f, g_r, g_c)
    best = float(g_c @ delta_c)
    assert kl_of(f, found.step) <= KL * (1 + 1e-9)
    assert float(g_c @ found.step) <= beta * best + 1e-9 * abs(best)
    gain, scale = float(g_r @ found.step), float(g_r @ delta_r)
    assert gain >= slsqp(f.numpy(), g_r.numpy(), g_c.numpy(), beta) - 1e-6 * scale
    assert gain >= float(g_r @ solve(f, g_r, g_c, beta).step) - 1e-6 * scale
    return found


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, st.sampled_from([0.0, 1.0]) | betas)
def test_exact_step_is_not_worse_than_slsqp(size: int, seed: int, beta: float) -> None:
    f, g_r, g_c = instance(size, seed)
    found = check_exact(f, g_r, g_c, beta)
    assume(abs(found.facts["cosine"]) < 0.9999)
    assert kl_of(f, found.step) == pytest.approx(KL, rel=1e-9)
    if found.facts["cosine"] > -beta:
        best = float(g_c @ pure_steps(f, g_r, g_c)[1])
        assert float(g_c @ found.step) == pytest.approx(beta * best, rel=1e-6, abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(sizes, seeds, st.floats(0, 0.6))
def test_exact_step_holds_where_both_roots_of_the_lemma_are_positive(size: int, seed: int, beta: float) -> None:
    f, g_r, g_c = instance(size, seed)
    g_r = g_r / g_r.norm() + 3 * g_c / g_c.norm()  # a cosine above beta: the smaller root would raise the cost
    assume(solve(f, g_r, g_c, beta).facts["cosine"] > beta)
    assert kl_of(f, check_exact(f, g_r, g_c, beta).step) == pytest.approx(KL, rel=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.75, 1.0])
def test_exact_step_with_parallel_gradients_is_beta_of_the_cost_step(beta: float) -> None:
    f, _, g_c = instance(5, 1)
    found = check_exact(f, 2 * g_c, g_c, beta)
    delta_c = pure_steps(f, g_c, g_c)[1]
    assert float(g_c @ found.step) == pytest.approx(beta * float(g_c @ delta_c), abs=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.75, 1.0])
def test_exact_step_with_opposed_gradients_is_the_reward_step(beta: float) -> None:
    f, _, g_c = instance(5, 1)
    found = check_exact(f, -5 * g_c, g_c, beta)
    torch.testing.assert_close(found.step, pure_steps(f, -g_c, g_c)[0], rtol=1e-5, atol=1e-8)


# ---- the whole update --------------------------------------------------------------------------------------------


def update(policy: Policy, batch: Batch, config: TrainConfig = CONFIG) -> tuple[Tensor, Tensor, Diagnostics]:
    """θ before and after an update, and what it reports."""
    before = flatten(policy.params).clone()
    found = SBTRPO(policy, None, config, torch.Generator()).update(batch, 0.0, 0.0)
    return before, flatten(policy.params), found


@pytest.mark.parametrize("solver", ["convex", "exact"])
@pytest.mark.parametrize("reduction", ["mean_over_dims", "sum_over_dims"])
@pytest.mark.parametrize("seed", range(3))
def test_accepted_update_keeps_the_kl_and_does_not_raise_the_cost(
    seed: int, reduction: KLReduction, solver: Solver
) -> None:
    policy = make_policy(seed)
    batch = make_batch(policy, seed)
    config = CONFIG.replace(solver=solver, kl_reduction=reduction)
    region = TrustRegion(policy, batch, reduction, SETTINGS.cg_damping)
    before, after, found = update(policy, batch, config)
    assert found["accepted_step"] > 0
    assert 0 < found["kl"] <= KL
    assert found["surrogate_c_change"] <= 0
    assert not torch.equal(before, after)
    there = region.evaluate(after)
    assert there.kl == found["kl"]
    assert there.surrogate_c - region.old.surrogate_c == found["surrogate_c_change"]


@pytest.mark.parametrize("solver", ["convex", "exact"])
def test_every_update_reports_every_diagnostic_in_order(solver: Solver) -> None:
    policy = make_policy()
    batch, config = make_batch(policy), CONFIG.replace(solver=solver)
    found = update(policy, batch, config)[-1]
    search, cg = ("line_search_tries", "line_search_failed"), ("cg_iterations", "cg_residual")
    own, halves = ("mu", "cosine", "cg_residual_r", "cg_residual_c"), ("holds_r", "holds_c")
    kl = ("kl_predicted", "kl_predicted_damped")
    assert tuple(found) == ("skipped", "accepted_step", *search, *COMMON, *kl, *cg, *own, *halves)
    unknown = {*halves, *(["mu"] if solver == "exact" else [])}
    assert {name for name, value in found.items() if math.isnan(value)} == unknown
    assert all(math.isfinite(value) for name, value in found.items() if name not in unknown)
    again = update(policy, altered(batch, advantage_r=batch.advantage_r * math.nan), config)[-1]
    assert tuple(again) == tuple(found)


@pytest.mark.parametrize("solver", ["convex", "exact"])
def test_predictions_hold_for_small_steps(solver: Solver) -> None:
    policy = make_policy()
    config = CONFIG.replace(target_kl=1e-8, cg_tolerance=1e-8, cg_damping=1e-3, solver=solver)
    before, after, found = update(policy, make_batch(policy), config)
    assert found["accepted_step"] == 1.0
    for name in ("surrogate_r", "surrogate_c"):
        assert found[f"{name}_predicted"] == pytest.approx(found[f"{name}_change"], rel=0.01)
    assert found["kl_predicted"] == pytest.approx(found["kl"], rel=0.01)
    assert found["kl_predicted_damped"] >= found["kl_predicted"]
    assert found["step_norm"] == pytest.approx(float((after - before).norm()))
    predicted = found["surrogate_r_predicted"], -found["surrogate_c_predicted"]
    for angle, gain, norm in zip(("angle_r", "angle_c"), predicted, ("r", "c"), strict=True):
        cosine = gain / (found[f"gradient_norm_{norm}"] * found["step_norm"])
        assert found[angle] == pytest.approx(math.degrees(math.acos(cosine)))


def test_kl_is_predicted_with_the_fisher_product_of_the_applied_step() -> None:
    policy = make_policy()
    batch = make_batch(policy)
    region = TrustRegion(policy, batch, "mean_over_dims", SETTINGS.cg_damping)
    before, after, found = update(policy, batch, CONFIG.replace(line_search_first=0.5))
    applied = after - before
    assert found["kl_predicted_damped"] == pytest.approx(0.5 * float(applied @ region.fisher(applied[None])[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_without_cost_takes_the_reward_step(dtype: torch.dtype) -> None:
    policy = make_policy(dtype=dtype)
    batch = make_batch(policy)
    batch = altered(batch, advantage_c=torch.zeros_like(batch.advantage_c))
    found = update(policy, batch)[-1]
    assert found["mu"] == 0
    assert found["accepted_step"] > 0
    assert found["surrogate_r_change"] > 0
    assert math.isnan(found["angle_c"])


@pytest.mark.parametrize("which", ["advantage_r", "advantage_c"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_advantages_that_are_not_numbers_skip_the_update(which: str, value: float) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    spoiled = getattr(batch, which).clone()
    spoiled[3] = value
    before, after, found = update(policy, altered(batch, **{which: spoiled}))
    assert found["skipped"] == 1
    assert found["accepted_step"] == found["line_search_tries"] == found["line_search_failed"] == 0
    assert torch.equal(before, after)


def test_line_search_may_start_below_the_full_step() -> None:
    first = []
    for share in (1.0, 0.8):
        policy = make_policy()
        config = CONFIG.replace(target_kl=1e-6, line_search_first=share)
        first.append(update(policy, make_batch(policy), config)[-1])
    assert [found["accepted_step"] for found in first] == [1.0, 0.8]
    assert [found["line_search_tries"] for found in first] == [1, 1]


def test_a_line_search_that_fails_keeps_theta_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    trial = TrustRegion.evaluate

    def far_away(region: TrustRegion, theta: Tensor) -> Trial:
        return dataclasses.replace(trial(region, theta), kl=1.0)

    monkeypatch.setattr(TrustRegion, "evaluate", far_away)
    before, after, found = update(policy, make_batch(policy), CONFIG.replace(line_search_tries=5))
    assert torch.equal(before, after)
    assert found["line_search_failed"] == 1
    assert found["line_search_tries"] == 5
    assert found["accepted_step"] == found["step_norm"] == found["kl_predicted_damped"] == 0
    assert found["surrogate_r_change"] == found["surrogate_c_change"] == 0
    assert found["skipped"] == 0


# ---- a bias that moves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.5, 0.6, 0.7, 0.8, 0.9]),
        ({"beta_from": 0.5}, [0.5, 0.5, 0.5, 0.7, 0.9]),
        ({"beta": 0.9, "beta_end": 0.5}, [0.9, 0.8, 0.7, 0.6, 0.5]),
        ({"beta": (0.1, 0.5)}, [(0.1, 0.5), (0.3, 0.6), (0.5, 0.7), (0.7, 0.8), (0.9, 0.9)]),
        ({"beta_end": (0.5, 0.9)}, [(0.5, 0.5), (0.5, 0.6), (0.5, 0.7), (0.5, 0.8), (0.5, 0.9)]),
    ],
)
def test_the_bias_moves_from_where_it_is_to(settings: dict[str, Any], expected: list[Any]) -> None:
    moving = SBTRPOSettings(**{"beta": 0.5, "beta_end": 0.9, **settings})
    now = [moving.scheduled(progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [beta["beta"] for beta in now] == [pytest.approx(beta) for beta in expected]
    assert (now[0]["beta"], now[-1]["beta"]) == (expected[0], expected[-1])


@pytest.mark.parametrize("solver", ["convex", "exact"])
@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.5), (0.499, 0.5), (0.75, 0.75)])
def test_updates_are_those_of_a_constant_bias(progress: float, beta: float, solver: Solver) -> None:
    """Of the one that holds then; settings stay as they were."""
    moving, batch = start("sb-trpo", beta=0.5, beta_end=1.0, beta_from=0.5, solver=solver)
    constant, _ = start("sb-trpo", beta=beta, solver=solver)
    settings = moving.settings
    found = moving.update(batch, 20.0, progress)
    assert found.pop("beta") == beta
    assert repr(found) == repr(constant.update(batch, 20.0, progress))
    assert torch.equal(theta_of(moving), theta_of(constant))
    assert moving.settings is settings


@pytest.mark.parametrize(("end", "now"), [(1.0, (0.625, 0.625)), ((1.0, 0.5), (0.625, 0.375))])
def test_each_constraint_has_its_own_bias_that_moves(
    end: float | tuple[float, float], now: tuple[float, float]
) -> None:
    moving, batch = start("sb-trpo", names=("walls", "speed"), beta=0.25, beta_end=end)
    constant, _ = start("sb-trpo", names=("walls", "speed"), beta=now)
    found = moving.update(batch, [20.0, 5.0], 0.5)
    assert (found.pop("beta_walls"), found.pop("beta_speed")) == now
    assert repr(found) == repr(constant.update(batch, [20.0, 5.0], 0.5))
    assert torch.equal(theta_of(moving), theta_of(constant))


def test_radius_and_bias_may_move_together() -> None:
    method, batch = start("sb-trpo", beta=0.5, beta_end=1.0, step_decay=1.0)
    found = method.update(batch, 20.0, 0.5)
    assert (found["radius"], found["beta"]) == (method.settings.target_kl / 4, 0.75)


def test_a_bias_at_the_end_fits_the_number_of_constraints() -> None:
    with pytest.raises(ValueError, match="beta_end has 2 values, and there is 1 constraint; give one value, or"):
        start("sb-trpo", beta_end=(0.6, 0.9))
