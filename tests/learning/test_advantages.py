import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sbtrpo.config import TrainConfig
from sbtrpo.envs import make_pool
from sbtrpo.learning.advantages import baseline_features, centre, fit_baseline, gae, paths, returns_to_go, standardise
from sbtrpo.learning.rollout import Collector
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.policy import Policy

GAMMA, LAMBDA = 0.9, 0.8
X = [1.0, 0.0, 2.0, -1.0, 3.0]
V = [0.5, 1.0, -0.5, 2.0, 1.5]


def column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def flags(*steps: int) -> Tensor:
    """(5, 1), true at these steps."""
    return torch.tensor([[step in steps] for step in range(5)])


def by_hand(x: list[float], v: list[float], bootstrap: float) -> list[float]:
    """GAE of one path, from the sum that defines it."""
    following = [*v[1:], bootstrap]
    delta = [a + GAMMA * n - b for a, n, b in zip(x, following, v, strict=True)]
    return [sum((GAMMA * LAMBDA) ** (k - t) * delta[k] for k in range(t, len(x))) for t in range(len(x))]


def estimate(terminated: Tensor, truncated: Tensor, next_values: list[float]) -> list[float]:
    ended = terminated | truncated
    return gae(column(X), column(V), column(next_values), terminated, ended, GAMMA, LAMBDA)[:, 0].tolist()


def test_gae_of_a_terminated_path_knows_that_nothing_follows() -> None:
    found = estimate(flags(4), flags(), [*V[1:], 99.0])
    assert found == pytest.approx(by_hand(X, V, bootstrap=0.0))


def test_gae_of_a_timed_out_path_takes_the_critic_at_its_last_observation() -> None:
    found = estimate(flags(), flags(4), [*V[1:], 0.7])
    assert found == pytest.approx(by_hand(X, V, bootstrap=0.7))


def test_gae_of_a_cut_path_takes_the_critic_at_the_next_observation() -> None:
    found = estimate(flags(), flags(), [*V[1:], 0.3])
    assert found == pytest.approx(by_hand(X, V, bootstrap=0.3))


def test_termination_outweighs_a_time_out_at_the_same_step() -> None:
    found = estimate(flags(4), flags(4), [*V[1:], 99.0])
    assert found == pytest.approx(by_hand(X, V, bootstrap=0.0))


def test_nothing_leaks_from_one_path_into_the_one_before() -> None:
    after_time_out = estimate(flags(), flags(1), [V[1], 0.7, *V[3:], 0.3])
    assert after_time_out == pytest.approx(by_hand(X[:2], V[:2], 0.7) + by_hand(X[2:], V[2:], 0.3))
    after_termination = estimate(flags(1), flags(), [*V[1:], 0.3])
    assert after_termination == pytest.approx(by_hand(X[:2], V[:2], 0.0) + by_hand(X[2:], V[2:], 0.3))


def test_gae_of_one_step_with_numbers() -> None:
    one = torch.ones((1, 1))
    nothing = torch.zeros((1, 1), dtype=torch.bool)
    assert gae(2 * one, 0.5 * one, 3 * one, nothing, nothing, 0.5, 0.9).item() == pytest.approx(2 + 0.5 * 3 - 0.5)


def test_monte_carlo_is_the_discounted_return_to_go() -> None:
    found = returns_to_go(column(X), flags(1), 0.5)[:, 0].tolist()
    assert found == [1.0, 0.0, 2 - 0.5 + 0.25 * 3, -1 + 0.5 * 3, 3.0]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 1000), st.floats(0.1, 1))
def test_gae_with_lambda_one_and_no_values_is_monte_carlo(steps: int, worlds: int, seed: int, gamma: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((steps, worlds), generator=generator)
    terminated, truncated = torch.rand((2, steps, worlds), generator=generator) < 0.2
    ended, zero = terminated | truncated, torch.zeros_like(x)
    found = gae(x, zero, zero, terminated, ended, gamma, 1.0)
    torch.testing.assert_close(found, returns_to_go(x, ended, gamma))
    for world in range(worlds):  # worlds do not know of each other
        alone = returns_to_go(x[:, [world]], ended[:, [world]], gamma)
        torch.testing.assert_close(alone[:, 0], found[:, world])


def test_long_sums_do_not_lose_digits() -> None:
    x = torch.full((100_000, 1), 0.1)
    found = returns_to_go(x, torch.zeros_like(x, dtype=torch.bool), 1.0)
    assert found[0].item() == pytest.approx(100_000 * float(x[0]), rel=1e-7)


def test_reward_advantages_are_standardised_and_cost_advantages_centred() -> None:
    advantage = 5 + 3 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
    standard, centred = standardise(advantage), centre(advantage)
    assert standard.mean().item() == pytest.approx(0, abs=1e-6)
    assert standard.std().item() == pytest.approx(1)
    assert centred.mean().item() == pytest.approx(0, abs=1e-6)
    assert centred.std().item() == pytest.approx(advantage.std().item())
    assert not standardise(torch.zeros(10)).any()


# ---- the linear baseline -----------------------------------------------------------------------------------------


def test_ridge_regression_recovers_a_linear_function() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn((500, 6), generator=generator)
    truth = torch.randn((6, 2), generator=generator)
    torch.testing.assert_close(fit_baseline(features, features @ truth, 1e-9), truth, rtol=1e-4, atol=1e-5)


def test_a_strong_ridge_shrinks_and_an_empty_feature_does_no_harm() -> None:
    features = torch.randn((500, 3), generator=torch.Generator().manual_seed(0))
    features[:, 2] = 0
    weak, strong = (fit_baseline(features, features[:, :1], ridge) for ridge in (1e-6, 10.0))
    assert weak[:, 0].tolist() == pytest.approx([1, 0, 0], abs=1e-4)
    assert 0 < float(strong[0, 0]) < 0.3


def test_features_hold_observation_square_time_and_a_constant() -> None:
    found = baseline_features(torch.tensor([[[2.0, -30.0]]]), torch.tensor([[0.5]]))
    assert found.tolist() == [[[2, -10, 4, 100, 0.5, 0.25, 0.125, 1]]]


def test_a_baseline_fitted_on_other_data_cuts_variance_and_adds_no_bias() -> None:
    pool = make_pool("ToyCorridor-v0", 20, 0, threads=1)
    policy = Policy(2, 2, (16, 16), torch.Generator().manual_seed(0))
    policy.params[-1][0] += 1.0  # to the right, so that returns depend on the time that is left
    collector = Collector(pool, policy, torch.Generator().manual_seed(1))
    collector.start()
    rollouts = [collector.collect(50) for _ in range(13)]

    returns = [returns_to_go(r.reward, r.terminated | r.truncated, 0.99) for r in rollouts]
    features = [baseline_features(r.obs, r.time) for r in rollouts]
    weights = fit_baseline(features[0].flatten(0, 1), returns[0].reshape(-1, 1), 1e-3)
    estimates = [y - (phi @ weights)[..., 0] for y, phi in zip(returns, features, strict=True)]
    assert torch.cat(estimates[1:]).var() < 0.5 * torch.cat(returns[1:]).var()

    # The gradient of log π in the mean action, weighted by each of them. Both estimate the same number: their
    # difference has mean zero within four standard errors, while the sampled gradients scatter less.
    score = [(r.action - policy.mean(r.obs))[..., 0] for r in rollouts]
    difference = torch.cat([(s * (y - e)).flatten() for s, y, e in zip(score, returns, estimates, strict=True)][1:])
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / len(difference) ** 0.5
    plain = torch.stack([(s * y).mean() for s, y in zip(score, returns, strict=True)][1:])
    better = torch.stack([(s * e).mean() for s, e in zip(score, estimates, strict=True)][1:])
    assert better.var() < 0.5 * plain.var()


# ---- value targets in training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("task", ["ToyCorridor-v0", "SafetyHopperVelocity-v1"])
def test_value_targets_of_the_trainer_are_those_of_a_plain_loop(task: str, raw: bool) -> None:
    worlds, steps = 3, 70
    config = TrainConfig(
        task=task, advantage="gae", num_envs=worlds, steps_per_epoch=worlds * steps, bootstrap_raw_observation=raw,
        gamma=GAMMA, gae_lambda=LAMBDA, threads=1,
    )  # fmt: skip
    trainer = Trainer(config)
    assert trainer.critics is not None
    rollout = trainer.collector.collect(steps)
    terminated, truncated = rollout.terminated, rollout.truncated
    values, targets = trainer._values(rollout, trainer.critics)[0], trainer._advantages(rollout).targets
    assert targets is not None
    finals = iter(trainer.critics(rollout.final_obs_raw if raw else rollout.final_obs).T)
    at_time_out = {at: next(finals) for at in map(tuple, torch.nonzero(truncated & ~terminated).tolist())}
    after = trainer.critics(rollout.last_obs)
    for head, x in enumerate((rollout.reward, rollout.cost)):
        for world in range(worlds):
            begin, expected = 0, list[float]()
            for t in range(steps):
                if terminated[t, world] or truncated[t, world] or t == steps - 1:
                    timed_out = at_time_out.get((t, world))
                    bootstrap = after[head, world] if timed_out is None else timed_out[head]
                    path = slice(begin, t + 1)
                    v = values[head, path, world].tolist()
                    last = 0.0 if terminated[t, world] else float(bootstrap)
                    advantages = by_hand(x[path, world].tolist(), v, last)
                    expected += [a + b for a, b in zip(advantages, v, strict=True)]
                    begin = t + 1
            assert targets[head, :, world].tolist() == pytest.approx(expected, abs=1e-4)


# ---- violations instead of costs -----------------------------------------------------------------------------------


def first_hits(costs: list[float], ends: list[bool], gamma: float) -> list[float]:
    """γ to the power of the steps until the next cost of the same path, by a plain loop."""
    found = []
    for t in range(len(costs)):
        value = 0.0
        for k in range(t, len(costs)):
            if costs[k] > 0:
                value = gamma ** (k - t)
                break
            if ends[k]:
                break
        found.append(value)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_first_hits_are_the_discounted_steps_to_the_next_violation(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    reward = torch.randn(40, 3, generator=rng)
    costs = torch.rand(2, 40, 3, generator=rng) * 5 * (torch.rand(2, 40, 3, generator=rng) < 0.15)
    terminated, truncated = (torch.rand(40, 3, generator=rng) < 0.1 for _ in range(2))
    x, _, ended = paths(torch.stack([reward, *costs]), terminated, truncated, first_hit=True)
    found = returns_to_go(x, ended, 0.9)
    over = terminated | truncated
    torch.testing.assert_close(found[0], returns_to_go(reward, over, 0.9))
    for cost, returns in zip(costs, found[1:], strict=True):
        for world in range(3):
            expected = first_hits(cost[:, world].tolist(), over[:, world].tolist(), 0.9)
            assert returns[:, world].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_violation_of_any_size_counts_the_same() -> None:
    nothing = torch.zeros(4, 1, dtype=torch.bool)
    costs = [torch.tensor([[0.0], [0.0], [size], [0.0]]) for size in (0.01, 1.0, 80.0)]
    small, usual, large = (paths(torch.stack([cost, cost]), nothing, nothing, True)[0][1] for cost in costs)
    assert torch.equal(small, usual)
    assert torch.equal(usual, large)


def test_a_critic_of_violations_sees_nothing_behind_one() -> None:
    """With critics that know the chance of a violation, advantages at a violation are what was not expected."""
    cost = torch.tensor([[0.0], [3.0], [0.0]])
    nothing = torch.zeros(3, 1, dtype=torch.bool)
    x, terminated, ended = paths(torch.stack([cost, cost]), nothing, nothing, first_hit=True)
    values, following = torch.full((2, 3, 1), 0.25), torch.full((2, 3, 1), 0.5)
    found = gae(x, values, following, terminated, ended, 0.9, 0.0)[1, :, 0].tolist()
    assert found == pytest.approx([0.9 * 0.5 - 0.25, 1 - 0.25, 0.9 * 0.5 - 0.25])


def test_without_it_signals_and_ends_are_as_they_were() -> None:
    signals = torch.rand(2, 5, 1)
    x, terminated, ended = paths(signals, flags(1), flags(2))
    assert x is signals
    assert torch.equal(terminated, flags(1).expand(2, 5, 1))
    assert torch.equal(ended, flags(1, 2).expand(2, 5, 1))
