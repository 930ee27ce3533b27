"""First-order methods: their slopes and gradients against autograd of the losses as the papers write them."""

import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sbtrpo.algorithms.base import Batch, report
from sbtrpo.algorithms.cup import CUP
from sbtrpo.algorithms.first_order import FirstOrderMethod, Minibatch, Samples, Slopes, clipped
from sbtrpo.algorithms.trust_region import TrustRegion
from sbtrpo.nets.policy import Policy
from sbtrpo.nets.stack import Floats
from tests.algorithms.samples import COMMON, make, make_batch, make_policy, start, theta_of


@dataclass
class Terms:
    """What a loss is made of: ratios and divergences (n,), advantages (n,), and what the method read."""

    ratio: Tensor
    kl: Tensor
    a_r: Tensor
    a_c: Tensor
    multiplier: float
    violation: float

    def lagrangian(self) -> Tensor:
        return (self.a_r - self.multiplier * self.a_c) / (1 + self.multiplier)


def surrogate(ratio: Tensor, advantage: Tensor) -> Tensor:
    """PPO's: mean min(ρ A, clip(ρ, 0.8, 1.2) A)."""
    return torch.minimum(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()


def cost_bound(ratio: Tensor, advantage: Tensor) -> Tensor:
    """The pessimistic one of cost: mean max(ρ A, clip(ρ, 0.8, 1.2) A)."""
    return torch.maximum(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()


def focops(t: Terms) -> Tensor:
    """As published: a column (n, 1) less a row (n,), times a column."""
    kl, inside = t.kl[:, None], (t.kl[:, None] <= 0.02).detach()
    return ((kl - (1 / 1.5) * t.ratio * t.lagrangian()) * inside).mean()


def focops_by_sample(t: Terms) -> Tensor:
    return ((t.kl - (1 / 1.5) * t.ratio * t.lagrangian()) * (t.kl <= 0.02).detach()).mean()


def p3o(t: Terms) -> Tensor:
    return -surrogate(t.ratio, t.a_r) + 10 * torch.relu(cost_bound(t.ratio, t.a_c) + 0.01 * t.violation)


def c3po(t: Terms, progress: float) -> Tensor:
    room = -t.violation
    hinge = torch.relu(cost_bound(t.ratio, t.a_c) - min(room, 0.05 * room))
    return -surrogate(t.ratio, t.a_r) + 50 * (0.1 + 0.9 * progress) * hinge


def appo(t: Terms) -> Tensor:
    f = max(0.0, t.multiplier + 0.1 * t.violation)
    return (-surrogate(t.ratio, t.a_r) + f * cost_bound(t.ratio, t.a_c)) / (1 + f)


def projection(t: Terms) -> Tensor:
    """CUP's second stage, with κ_c = (1 - 0.99 * 0.95) / (1 - 0.99) = 5.95."""
    return t.multiplier * 5.95 * (t.ratio * t.a_c).mean() + t.kl.mean()


@dataclass(frozen=True)
class Case:
    algo: str
    loss: Callable[[Terms], Tensor]
    violation: float = 10.0
    """Ĵ_c - limit, at limit 25."""
    progress: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    active: bool | None = None
    """Whether the hinge is, in a loss that has one."""


CASES = {
    "ppo": Case("ppo", lambda t: -surrogate(t.ratio, t.a_r)),
    "ppo_lag": Case("ppo_lag", lambda t: -surrogate(t.ratio, t.lagrangian())),
    "cppo_pid": Case("cppo_pid", lambda t: -surrogate(t.ratio, t.lagrangian())),
    "focops": Case("focops", focops),
    "focops, by sample": Case("focops", focops_by_sample, settings={"focops_broadcast": False}),
    "cup, stage 1": Case("cup", lambda t: -surrogate(t.ratio, t.a_r)),
    "cup, stage 2": Case("cup", projection),
    "p3o, active": Case("p3o", p3o, 10.0, active=True),
    "p3o, inactive": Case("p3o", p3o, -24.9, active=False),
    "c3po, active": Case("c3po", c3po_at := lambda t: c3po(t, 0.0), 10.0, active=True),
    "c3po, inactive": Case("c3po", c3po_at, -24.9, active=False),
    "c3po, at half time": Case("c3po", lambda t: c3po(t, 0.5), 10.0, progress=0.5, active=True),
    "appo": Case("appo", appo),
    "appo, without a penalty": Case("appo", appo, -20.0),
}


@dataclass
class Middle:
    """A method in the middle of an update: its actor is some way from the rollout policy."""

    method: FirstOrderMethod
    batch: Batch
    seen: Minibatch
    slopes: Slopes
    reference: Policy
    terms: Callable[[Tensor, Tensor], Terms]


def middle(name: str, size: int = 40) -> Middle:
    case = CASES[name]
    policy = make_policy(dtype=torch.float32)
    batch = make_batch(policy, size=size)
    method = make(case.algo, policy, cost_limit=25.0, **case.settings)
    assert isinstance(method, FirstOrderMethod)
    for _ in range(10 if method.multiplier else 0):  # a multiplier that is worth mentioning
        method.lagrange(25 + max(case.violation, 0.0))
    samples: Samples = method.start(batch).samples
    fixed = method.prepare(samples, [25 + case.violation], case.progress)
    reference_log_std = method.actor.log_std.copy()
    method.actor.stack.theta += 0.12 * np.random.default_rng(0).standard_normal(len(method.actor.stack.theta))
    seen = method.actor.see(samples, reference_log_std, fixed)
    slopes = method.projection_slopes if isinstance(method, CUP) and name.endswith("2") else method.slopes
    multiplier = 0.0 if method.multiplier is None else method.multiplier.value

    def terms(ratio: Tensor, kl: Tensor) -> Terms:
        return Terms(ratio, kl, batch.advantage_r.double(), batch.advantage_c.double(), multiplier, case.violation)

    return Middle(method, batch, seen, slopes(seen), copy.deepcopy(policy), terms)


def test_the_minibatch_is_one_in_which_everything_happens() -> None:
    here = middle("focops")
    ratio, inside = here.seen.ratio, here.seen.kl <= 0.02
    assert (ratio > 1.2).any()
    assert (ratio < 0.8).any()
    assert 0.1 < inside.mean() < 0.9
    assert here.method.multiplier is not None
    assert here.method.multiplier.value > 0.1


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_those_of_the_literal_loss(name: str) -> None:
    here = middle(name)
    ratio = torch.from_numpy(here.seen.ratio).double().requires_grad_()
    kl = torch.from_numpy(here.seen.kl).double().requires_grad_()
    loss = CASES[name].loss(here.terms(ratio, kl))
    in_ratio, in_kl = torch.autograd.grad(loss, (ratio, kl), allow_unused=True)
    slopes, n = here.slopes, len(ratio)
    assert in_ratio is not None
    np.testing.assert_allclose(slopes.ratio / n, in_ratio.numpy(), rtol=1e-4, atol=1e-7)
    if in_kl is None:
        assert slopes.kl is None
    else:
        assert slopes.kl is not None
        np.testing.assert_allclose(slopes.kl / n, in_kl.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_autograds_through_the_network(name: str) -> None:
    here = middle(name)
    here.method.actor.backward(here.seen, here.slopes)
    gradient = here.method.actor.flat_gradient()
    here.method.actor.store(here.method.policy)
    params = [tensor.double().requires_grad_() for tensor in here.method.policy.params]
    obs, action = here.batch.obs.double(), here.batch.action.double()
    reference = [tensor.double() for tensor in here.reference.params]
    old = Normal(here.reference.mean(obs, reference), torch.exp(reference[0]))
    new = Normal(here.reference.mean(obs, params), torch.exp(params[0]))
    ratio = torch.exp(new.log_prob(action).sum(dim=1) - here.batch.log_prob.double())  # type: ignore[no-untyped-call]
    loss = CASES[name].loss(here.terms(ratio, kl_divergence(new, old).sum(dim=1)))
    loss.backward()  # type: ignore[no-untyped-call]
    expected = np.concatenate([tensor.grad.reshape(-1).numpy() for tensor in params if tensor.grad is not None])
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.active is not None])
def test_the_hinge_is_active_where_the_case_says_so(name: str) -> None:
    here, case = middle(name), CASES[name]
    reward_alone = -clipped(here.seen.ratio, here.seen.advantage_r, 0.2)
    assert bool((here.slopes.ratio == reward_alone).all()) is not case.active


def test_pass_has_the_distributions_ratios_and_divergences() -> None:
    here = middle("focops")
    here.method.actor.store(here.method.policy)
    obs, action = here.batch.obs, here.batch.action
    new, old = (Normal(p.mean(obs), torch.exp(p.log_std)) for p in (here.method.policy, here.reference))
    ratio = torch.exp((new.log_prob(action) - old.log_prob(action)).sum(dim=1))  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(here.seen.ratio, ratio, rtol=1e-4)
    np.testing.assert_allclose(here.seen.kl, kl_divergence(new, old).sum(dim=1), rtol=1e-3, atol=1e-6)
    means = here.reference.mean(obs).numpy()
    kl = here.method.actor.kl_from(means, here.reference.log_std.numpy(), obs.numpy())
    assert kl == pytest.approx(float(kl_divergence(old, new).sum(dim=1).mean()), rel=1e-4)


@pytest.mark.parametrize("shape", [(5, 2, (7, 6)), (4, 3, (5,)), (3, 1, (4, 4, 4)), (1, 1, (1,))])
def test_the_actor_gives_back_what_it_took(shape: tuple[int, int, tuple[int, ...]]) -> None:
    policy = make_policy(0, *shape, dtype=torch.float32)
    method = make("ppo", policy)
    assert isinstance(method, FirstOrderMethod)
    obs, before = torch.randn((9, shape[0])), theta_of(method)
    np.testing.assert_allclose(method.actor.mean(obs.numpy()), policy.mean(obs), rtol=1e-4, atol=1e-6)
    method.actor.store(policy)
    assert torch.equal(theta_of(method), before)


@pytest.mark.parametrize("algo", ["ppo", "ppo_lag", "focops", "cup", "p3o", "c3po"])
def test_the_report_is_what_a_trust_region_sees(algo: str) -> None:
    method, batch = start(algo, policy_passes=2)
    region = TrustRegion(copy.deepcopy(method.policy), batch, "sum_over_dims", 0.0)
    diagnostics = method.update(batch, 3.0, 0.0)
    theta = theta_of(method)
    expected = report(region.old, region.evaluate(theta), region.gradients(), theta - region.theta)
    assert diagnostics["step_norm"] > 0
    assert {name: diagnostics[name] for name in COMMON} == pytest.approx(expected, rel=2e-3, abs=1e-6)


# ---- passes --------------------------------------------------------------------------------------------------------


def test_passes_stop_after_the_one_in_which_the_kl_exceeds_its_target() -> None:
    def run(**settings: Any) -> dict[str, float]:
        method, batch = start("ppo", learning_rate=3e-3, **settings)
        return method.update(batch, 0.0, 0.0)

    after = [run(policy_passes=passes, target_kl=1e9)["kl_at_stop"] for passes in range(1, 8)]
    assert after[0] < after[3] < after[6]
    target = (after[3] + max(after[:3])) / 2
    stopped = run(policy_passes=40, target_kl=target)
    assert stopped["passes"] == 4
    assert stopped["kl_at_stop"] == after[3] > target  # the pass that went too far is kept
    assert stopped["kl"] == pytest.approx(after[3], rel=1e-3)
    assert run(policy_passes=3, target_kl=target)["passes"] == 3


def test_critics_stop_with_the_policy() -> None:
    steps = []
    for target in (1e-12, 1e9):
        method, batch = start("ppo", policy_passes=5, target_kl=target)
        method.update(batch, 0.0, 0.0)
        assert method.critics is not None
        steps.append(method.critics.state_dict()["steps"])
    assert steps == [4, 20]  # 200 samples in minibatches of 64: one pass, and five


def test_the_learning_rate_falls_linearly_to_zero() -> None:
    rates, norms = [], []
    for progress in (0.0, 0.5, 0.999):
        method, batch = start("ppo", policy_passes=1)
        diagnostics = method.update(batch, 0.0, progress)
        rates.append(diagnostics["learning_rate"])
        norms.append(diagnostics["step_norm"])
    assert rates == pytest.approx([3e-4, 1.5e-4, 3e-7])
    assert norms[0] > norms[1] > norms[2]


def test_policy_and_critics_are_clipped_together() -> None:
    whole, batch = start("ppo", policy_passes=1, policy_batch=1000)
    spread = start("ppo", policy_passes=1, policy_batch=1000, max_grad_norm=1e-6)[0]
    huge = dataclasses.replace(batch, targets=1e4 * torch.ones_like(batch.targets))  # type: ignore[arg-type]
    moments = []
    for method, sample in ((whole, batch), (whole, huge), (spread, batch)):
        fresh = start("ppo", policy_passes=1, policy_batch=1000, max_grad_norm=method.settings.max_grad_norm)[0]
        fresh.update(sample, 0.0, 0.0)
        moments.append(10 * np.linalg.norm(fresh.state_dict()["adam"]["mean"]))
    free, crowded, bounded = moments
    assert crowded < 1e-2 * free  # the critics' error takes the bound of 40 for itself
    assert bounded < 1e-6


def test_an_update_reports_the_kl_and_surrogates_of_the_policy_it_leaves() -> None:
    method, batch = start("ppo")
    old = Normal(method.policy.mean(batch.obs), torch.exp(method.policy.log_std.clone()))
    diagnostics = method.update(batch, 0.0, 0.0)
    new = Normal(method.policy.mean(batch.obs), torch.exp(method.policy.log_std))
    ratio = torch.exp(new.log_prob(batch.action).sum(dim=1) - batch.log_prob)  # type: ignore[no-untyped-call]
    assert diagnostics["kl"] == pytest.approx(float(kl_divergence(old, new).sum(dim=1).mean()), rel=1e-3)
    for name, advantage in (("r", batch.advantage_r), ("c", batch.advantage_c)):
        change = float(((ratio - 1) * advantage).mean())
        assert diagnostics[f"surrogate_{name}_change"] == pytest.approx(change, rel=1e-3, abs=1e-6)


# ---- CUP and C3PO --------------------------------------------------------------------------------------------------


def test_cups_second_stage_starts_from_the_first_and_moves_the_policy_alone() -> None:
    method, batch = start("cup", policy_passes=3, cost_limit=0.0)
    assert isinstance(method, CUP)
    for _ in range(5):
        method.lagrange(20.0)
    one, _ = start("ppo", policy_passes=3)
    one.update(batch, 20.0, 0.0)
    diagnostics = method.update(batch, 20.0, 0.0)
    assert diagnostics["projection_passes"] >= 1
    assert method.critics is not None
    assert one.critics is not None
    assert (method.critics.stack.theta == one.critics.stack.theta).all()
    assert not torch.equal(theta_of(method), theta_of(one))
    assert method.state_dict()["adam"]["steps"] == 4 * (diagnostics["passes"] + diagnostics["projection_passes"])


def test_cups_second_stage_measures_its_divergence_from_where_the_first_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = start("cup", learning_rate=3e-3)
    assert isinstance(method, CUP)
    rollout, run, stages = method.policy.mean(batch.obs).numpy(), FirstOrderMethod.run, []

    def watched(self: FirstOrderMethod, samples: Samples, *rest: Any) -> Any:
        stages.append((samples.reference.copy(), self.actor.mean(samples.obs).copy()))
        return run(self, samples, *rest)

    monkeypatch.setattr(FirstOrderMethod, "run", watched)
    method.update(batch, 20.0, 0.0)
    first, second = stages
    for reference, mean in stages:
        np.testing.assert_array_equal(reference, mean)
    np.testing.assert_allclose(first[0], rollout, rtol=1e-4, atol=1e-6)
    assert np.abs(second[0] - first[0]).max() > 1e-3


def test_cups_second_stage_has_its_own_limit_on_the_kl() -> None:
    method, batch = start("cup", policy_passes=30, learning_rate=3e-3, target_kl=0.004)
    for _ in range(5):
        method.lagrange(20.0)
    diagnostics = method.update(batch, 20.0, 0.0)
    assert diagnostics["passes"] < 30
    assert diagnostics["projection_passes"] < 30
    assert diagnostics["projection_kl_at_stop"] > 0.004


def test_c3pos_critics_are_fitted_afterwards_with_double_weight_on_reward_and_no_clipping() -> None:
    method, batch = start("c3po", policy_passes=2, critic_passes=2)
    method.update(batch, 20.0, 0.0)
    orders = torch.Generator().manual_seed(0)
    other, _ = start("c3po", policy_passes=2, critic_passes=2)
    assert method.critics is not None
    assert other.critics is not None
    orders.set_state(other.orders.get_state())
    for _ in range(2):  # the actor's passes come first
        torch.randperm(len(batch.obs), generator=orders)
    assert batch.targets is not None
    other.critics.fit(batch.obs, batch.targets, 128, 2, 1e-3, math.inf, orders, weights=(2.0, 1.0))
    assert (method.critics.stack.theta == other.critics.stack.theta).all()


def test_c3pos_penalty_grows_over_the_run() -> None:
    method, batch = start("c3po", policy_passes=1)
    penalties = [method.update(batch, 20.0, progress)["penalty"] for progress in (0.0, 0.5, 0.9)]
    assert penalties == pytest.approx([5.0, 27.5, 45.5])


def test_c3pos_stale_gradient_counts_in_the_clipping_and_shrinks_with_it() -> None:
    method, _ = start("c3po", max_grad_norm=1.0)
    assert isinstance(method, FirstOrderMethod)
    method.load_state_dict({**method.state_dict(), "stale": 12.0})
    gradient: Floats = np.array([3.0, 4.0], np.float32)
    method.clip([gradient])
    np.testing.assert_allclose(gradient, np.array([3.0, 4.0]) / 13, rtol=1e-5)
    assert method.state_dict()["stale"] == pytest.approx(12 / 13)
    alone, _ = start("c3po", max_grad_norm=1.0, stale_critic_clip=False)
    assert isinstance(alone, FirstOrderMethod)
    alone.load_state_dict({**alone.state_dict(), "stale": 12.0})
    gradient = np.array([3.0, 4.0], np.float32)
    alone.clip([gradient])
    np.testing.assert_allclose(gradient, np.array([3.0, 4.0]) / 5, rtol=1e-5)
