import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from sbtrpo.algorithms.base import Trial
from sbtrpo.algorithms.trust_region import KLReduction, TrustRegion, conjugate_gradient, line_search
from sbtrpo.nets import linearised
from sbtrpo.nets.network import flatten, unflatten
from sbtrpo.nets.policy import Policy
from tests.algorithms.problems import spd
from tests.algorithms.samples import make, make_batch, make_policy, theta_of

REDUCTIONS: list[KLReduction] = ["mean_over_dims", "sum_over_dims"]
SHAPES = [(5, 2, (7, 6)), (4, 3, (5,)), (3, 1, (4, 4, 4))]  # observations, actions, hidden layers


def distribution(policy: Policy, obs: Tensor, theta: Tensor) -> Normal:
    params = unflatten(theta, policy.params)
    return Normal(policy.mean(obs, params), torch.exp(params[0]))


def vectors(count: int, like: Tensor, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, len(like)), generator=generator, dtype=like.dtype)


# ---- linearisation, gradients, Fisher products -------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 0.02])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fisher_product_is_the_double_backward_of_the_mean_kl(
    shape: tuple[int, int, tuple[int, ...]], reduction: KLReduction, damping: float
) -> None:
    policy = make_policy(0, *shape)
    batch = make_batch(policy)
    region = TrustRegion(policy, batch, reduction, damping)
    theta = region.theta.clone().requires_grad_()
    old = distribution(policy, batch.obs, region.theta)
    kl = kl_divergence(old, distribution(policy, batch.obs, theta))
    mean_kl = kl.mean() if reduction == "mean_over_dims" else kl.sum(dim=1).mean()
    (gradient,) = torch.autograd.grad(mean_kl, theta, create_graph=True)
    v = vectors(2, region.theta)
    hessian = torch.stack([torch.autograd.grad(gradient @ row, theta, retain_graph=True)[0] for row in v])
    torch.testing.assert_close(region.fisher(v), hessian + damping * v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_fisher_product_is_the_second_difference_of_the_kl(reduction: KLReduction) -> None:
    policy = make_policy(3)
    region = TrustRegion(policy, make_batch(policy), reduction, 0.0)
    for v in vectors(3, region.theta):
        h = 1e-4
        both_sides = region.evaluate(region.theta + h * v).kl + region.evaluate(region.theta - h * v).kl
        assert both_sides / h**2 == pytest.approx(float(v @ region.fisher(v[None])[0]), rel=1e-5)


def test_fisher_products_together_equal_one_by_one() -> None:
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    v = vectors(3, region.theta)
    torch.testing.assert_close(region.fisher(v), torch.cat([region.fisher(row[None]) for row in v]))


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_autograds_of_the_surrogates(shape: tuple[int, int, tuple[int, ...]]) -> None:
    policy = make_policy(0, *shape)
    batch = make_batch(policy)
    region = TrustRegion(policy, batch, "mean_over_dims", 0.02)
    theta = region.theta.clone().requires_grad_()
    log_prob = distribution(policy, batch.obs, theta).log_prob(batch.action).sum(dim=1)  # type: ignore[no-untyped-call]
    ratio = torch.exp(log_prob - batch.log_prob)
    for found, advantage in zip(region.gradients(), (batch.advantage_r, batch.advantage_c), strict=True):
        (expected,) = torch.autograd.grad((ratio * advantage).mean(), theta, retain_graph=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_evaluate_gives_the_kl_and_surrogates_of_the_distributions(reduction: KLReduction) -> None:
    policy = make_policy(actions=3)
    batch = make_batch(policy)
    region = TrustRegion(policy, batch, reduction, 0.02)
    theta = region.theta + 0.1 * vectors(1, region.theta)[0]
    old, new = (Independent(distribution(policy, batch.obs, at), 1) for at in (region.theta, theta))
    true_kl = float(kl_divergence(old, new).mean())
    ratio = torch.exp(new.log_prob(batch.action) - old.log_prob(batch.action))  # type: ignore[no-untyped-call]
    trial = region.evaluate(theta)
    assert trial.kl == pytest.approx(true_kl / 3 if reduction == "mean_over_dims" else true_kl)
    assert trial.surrogate_r == pytest.approx(float((ratio * batch.advantage_r).mean()))
    assert trial.surrogate_c == pytest.approx(float((ratio * batch.advantage_c).mean()))


def test_old_trial_is_the_evaluation_at_theta_to_the_last_bit() -> None:
    policy = Policy(5, 2, (7, 6), torch.Generator().manual_seed(0))
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    assert region.old == region.evaluate(region.theta)
    assert region.old.kl == pytest.approx(0, abs=1e-7)


# ---- chunks --------------------------------------------------------------------------------------------------------


def update_in_chunks(monkeypatch: pytest.MonkeyPatch, chunk: int, budget: int) -> tuple[dict[str, float], Tensor]:
    """What an update of SB-TRPO reports, and the parameters after it, in double precision."""
    monkeypatch.setattr(linearised, "CHUNK", chunk)
    monkeypatch.setattr(linearised, "BUDGET", budget)
    policy = make_policy(2)
    method = make("sb-trpo", policy, cg_tolerance=1e-10)
    return method.update(make_batch(policy, 2, size=500), 3.0, 0.0), theta_of(method)


def test_an_update_in_chunks_is_that_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, theta = update_in_chunks(monkeypatch, 500, 2**30)
    assert whole["accepted_step"] > 0
    for chunk in (64, 250, 499):
        in_chunks, reached = update_in_chunks(monkeypatch, chunk, 2**30)
        assert in_chunks == pytest.approx(whole, rel=1e-9, abs=1e-10, nan_ok=True)
        torch.testing.assert_close(reached, theta, rtol=0, atol=1e-10)


def test_linearising_anew_is_the_same_as_keeping_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, theta = update_in_chunks(monkeypatch, 64, 2**30)
    for budget in (0, 50_000):  # none, and two of eight chunks
        anew, reached = update_in_chunks(monkeypatch, 64, budget)
        assert repr(anew) == repr(kept)
        assert torch.equal(reached, theta)


def test_a_region_stays_at_its_parameters_when_the_policy_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearised, "CHUNK", 64)
    monkeypatch.setattr(linearised, "BUDGET", 0)
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    v = vectors(1, region.theta)
    before = region.gradients(), region.fisher(v)
    policy.set(region.theta + 0.1 * v[0])
    assert torch.equal(region.gradients(), before[0])
    assert torch.equal(region.fisher(v), before[1])


# ---- conjugate gradients -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(0, 10_000))
def test_conjugate_gradients_solve_spd_systems_together_as_one_by_one(size: int, seed: int) -> None:
    a = spd(size, seed)
    b = torch.randn((3, size), generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    solution = conjugate_gradient(lambda v: v @ a, b, iterations=4 * size)
    torch.testing.assert_close(solution.x, torch.linalg.solve(a, b.T).T, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(solution.product, solution.x @ a, rtol=1e-6, atol=1e-8)
    for i, row in enumerate(b):
        alone = conjugate_gradient(lambda v: v @ a, row[None], iterations=4 * size)
        torch.testing.assert_close(alone.x[0], solution.x[i], rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_stop_at_the_tolerance_each_system_by_itself() -> None:
    a = spd(60, 0)
    b = torch.randn((2, 60), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b[1] *= 1e-3  # the tolerance is relative to each right-hand side
    rough, fine = (conjugate_gradient(lambda v: v @ a, b, 200, tolerance) for tolerance in (0.1, 1e-6))
    assert 0 < rough.iterations < fine.iterations < 200
    for solution, tolerance in ((rough, 0.1), (fine, 1e-6)):
        true = (b - solution.x @ a).norm(dim=1) / b.norm(dim=1)
        assert (true <= tolerance).all()
        torch.testing.assert_close(solution.residual, true, rtol=1e-3, atol=1e-10)


def test_a_solved_system_is_left_alone_while_the_other_goes_on() -> None:
    a = torch.diag(torch.linspace(1, 50, 50, dtype=torch.float64))
    b = torch.ones((2, 50), dtype=torch.float64)
    b[0] = 0
    b[0, 3] = 2.0  # an eigenvector: one iteration
    solution = conjugate_gradient(lambda v: v @ a, b, 40)
    torch.testing.assert_close(solution.x[0], b[0] / 4)
    assert solution.iterations > 1
    assert torch.isfinite(solution.x).all()


def test_conjugate_gradients_of_zero_are_zero_without_any_product() -> None:
    def never(_: Tensor) -> Tensor:
        raise AssertionError("no product is needed")

    solution = conjugate_gradient(never, torch.zeros((2, 4)), 10)
    assert solution.iterations == 0
    assert not solution.x.any()
    assert not solution.residual.any()


@pytest.mark.parametrize("cap", [1, 3, 7])
def test_conjugate_gradients_use_no_more_products_than_allowed(cap: int) -> None:
    a, calls = spd(40, 1), []

    def product(v: Tensor) -> Tensor:
        calls.append(1)
        return v @ a

    solution = conjugate_gradient(product, torch.ones((1, 40), dtype=torch.float64), cap)
    assert solution.iterations == len(calls) == cap
    assert float(solution.residual[0]) > 0


def test_epsilon_keeps_small_gradients_from_converging() -> None:
    a = spd(20, 2)
    b = 1e-4 * torch.ones((1, 20), dtype=torch.float64)
    exact, published = (conjugate_gradient(lambda v: v @ a, b, 50, epsilon=epsilon) for epsilon in (0.0, 1e-6))
    assert float(exact.residual[0]) < 1e-6 < float(published.residual[0])
    torch.testing.assert_close(published.product, published.x @ a)


# ---- line search -------------------------------------------------------------------------------------------------


def test_line_search_shrinks_until_acceptable() -> None:
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    delta = vectors(1, region.theta)[0]
    found = line_search(region, delta, lambda trial: trial.kl < 0.01, 100, 0.5)
    assert found.step == 0.5 ** (found.tries - 1) < 1
    torch.testing.assert_close(found.theta, region.theta + found.step * delta)
    assert found.trial == region.evaluate(found.theta)
    assert found.trial.kl < 0.01 <= region.evaluate(region.theta + 2 * found.step * delta).kl


def test_line_search_that_cannot_succeed_gives_back_theta() -> None:
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    found = line_search(region, vectors(1, region.theta)[0], lambda _: False, 7, 0.8)
    assert (found.step, found.tries) == (0.0, 7)
    assert torch.equal(found.theta, flatten(policy.params))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_below_rounding_is_never_accepted(dtype: torch.dtype) -> None:
    """Uphill the cost does not fall; where steps drown in rounding, it seems to."""
    policy = make_policy(dtype=dtype)
    batch = make_batch(policy)
    region = TrustRegion(policy, batch, "mean_over_dims", 0.02)
    uphill = region.gradients()[1]
    rounding = torch.finfo(dtype).eps * float(region.theta.norm())
    steps = [0.8**k * float(uphill.norm()) for k in range(400)]
    found = line_search(region, uphill, lambda trial: trial.surrogate_c <= region.old.surrogate_c, 400, 0.8)
    seeming = [float(region.evaluate(region.theta + 0.8**k * uphill).surrogate_c) for k in range(400)]
    assert any(cost <= region.old.surrogate_c for cost in seeming)
    assert found.step == 0.0
    assert found.tries == sum(step > rounding for step in steps) < 400
    assert torch.equal(found.theta, region.theta)


def test_a_batch_without_a_signal_is_no_failure() -> None:
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    found = line_search(region, torch.zeros_like(region.theta), lambda trial: trial.kl <= 0.01, 7, 0.8)
    assert (found.step, found.tries) == (1.0, 1)


def test_trials_that_are_not_numbers_are_never_acceptable() -> None:
    assert not Trial(float("nan"), (0.0, 0.0)).finite
    assert not Trial(0.0, (float("inf"), 0.0)).finite
    assert not Trial(0.0, (float("inf"), -float("inf"))).finite
    assert Trial(0.0, (1.0, -1.0)).finite
    policy = make_policy()
    region = TrustRegion(policy, make_batch(policy), "mean_over_dims", 0.02)
    found = line_search(region, torch.full_like(region.theta, torch.nan), lambda _: True, 3, 0.8)
    assert found.step == 0.0
