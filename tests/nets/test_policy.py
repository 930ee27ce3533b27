import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal

from sbtrpo.nets.network import flatten, make_mlp, unflatten
from sbtrpo.nets.normaliser import Normaliser
from sbtrpo.nets.policy import Policy
from sbtrpo.nets.policy import make_policy as policy_for


def make_policy(seed: int = 0) -> Policy:
    return Policy(4, 2, (8, 6), torch.Generator().manual_seed(seed))


# ---- the normaliser ----------------------------------------------------------------------------------------------


def test_normaliser_begins_with_mean_zero_and_variance_one() -> None:
    normaliser = Normaliser(3)
    assert normaliser.mean.tolist() == [0, 0, 0]
    assert normaliser.var.tolist() == [1, 1, 1]
    assert normaliser.count == 1e-4
    assert normaliser(np.array([1.0, -2.0, 0.0])) == pytest.approx([1, -2, 0])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(0, 1000))
def test_normaliser_merges_batches_into_the_statistics_of_all_data(sizes: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    batches = [generator.normal(3, 5, (size, 2)) for size in sizes]
    normaliser = Normaliser(2)
    for batch in batches:
        normaliser.update(batch)
    data = np.concatenate(batches)
    weight = 1e-4  # of the prior, whose first and second moments are 0 and 1
    total = len(data) + weight
    mean = data.sum(axis=0) / total
    var = ((data**2).sum(axis=0) + weight) / total - mean**2
    assert normaliser.count == pytest.approx(total)
    np.testing.assert_allclose(normaliser.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(normaliser.var, var, rtol=1e-7, atol=1e-9)


def test_normalised_data_have_mean_zero_and_variance_one_and_are_not_clipped() -> None:
    data = np.random.default_rng(0).normal(3, 5, (1000, 2))
    normaliser = Normaliser(2)
    normaliser.update(data)
    np.testing.assert_allclose(normaliser(data).mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(normaliser(data).std(axis=0), 1, atol=1e-5)
    assert (normaliser(np.full(2, 1e6)) > 1e5).all()


def test_normaliser_state_round_trip() -> None:
    one, other = Normaliser(2), Normaliser(2)
    one.update(np.array([[1.0, 2.0], [3.0, 5.0]]))
    state = one.state_dict()
    one.update(np.array([[9.0, 9.0]]))
    other.load_state_dict(state)
    other.update(np.array([[9.0, 9.0]]))
    assert (one.mean == other.mean).all()
    assert (one.var == other.var).all()
    assert one.count == other.count


# ---- the distribution ---------------------------------------------------------------------------------------------


def test_policy_log_prob_is_that_of_its_distribution() -> None:
    policy = make_policy()
    policy.log_std.copy_(torch.tensor([0.3, -0.7]))
    obs, action = torch.randn((6, 4)), torch.randn((6, 2))
    expected = Normal(policy.mean(obs), policy.log_std.exp()).log_prob(action).sum(dim=1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(policy.log_prob(obs, action), expected)
    shifted = [tensor + 0.1 for tensor in policy.params]
    expected = Normal(policy.mean(obs, shifted), shifted[0].exp()).log_prob(action).sum(dim=1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(policy.log_prob(obs, action, shifted), expected)


def test_network_is_tanh_with_a_linear_output_and_pytorchs_bounds() -> None:
    network = make_mlp([50, 40, 3], torch.Generator().manual_seed(0))
    x = torch.randn((7, 50))
    w1, b1, w2, b2 = network.params
    torch.testing.assert_close(network(x), torch.tanh(x @ w1.T + b1) @ w2.T + b2)
    for tensor, inputs in zip(network.params, (50, 50, 40, 40), strict=True):
        assert float(tensor.abs().max()) <= inputs**-0.5
    assert float(w1.std()) == pytest.approx(50**-0.5 / 3**0.5, rel=0.05)
    assert not make_policy().log_std.any()


# ---- acting ------------------------------------------------------------------------------------------------------


def test_deterministic_action_is_the_mean_at_the_normalised_observation() -> None:
    policy = make_policy()
    policy.normaliser.update(np.random.default_rng(0).normal(2, 3, (50, 4)))
    raw = np.random.default_rng(1).normal(2, 3, (5, 4))
    action = policy.act(raw, deterministic=True)
    expected = policy.mean(torch.from_numpy(policy.normaliser(raw)).float())
    np.testing.assert_allclose(action, expected.numpy(), rtol=1e-6)
    assert action.dtype == np.float32
    np.testing.assert_allclose(policy.act(raw[0], deterministic=True), action[0], rtol=1e-5)
    assert policy.normaliser.count == 50 + 1e-4  # acting leaves the statistics alone


def test_sampled_actions_follow_the_seed_and_the_standard_deviation() -> None:
    policy = make_policy()
    policy.log_std.copy_(torch.tensor([0.0, -2.0]))
    raw = np.zeros((4000, 4))
    one, same, other = (policy.act_in_pool(raw, False, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    np.testing.assert_allclose(one.std(axis=0), np.exp([0, -2]), rtol=0.1)


def test_actions_are_mapped_to_the_bounds_of_the_space() -> None:
    space = gymnasium.spaces.Box(np.array([0.0, -2.0]), np.array([10.0, 2.0]), dtype=np.float64)
    policy = policy_for(3, space, (8,), torch.Generator().manual_seed(0))
    np.testing.assert_allclose(
        policy.to_env(np.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 3.0]])), [[0, -2], [10, 2], [5, 6]]
    )
    raw = policy.mean(torch.zeros((1, 3))).numpy()
    np.testing.assert_allclose(policy.act(np.zeros((1, 3)), deterministic=True), policy.to_env(raw), rtol=1e-6)


def test_a_choice_is_a_whole_number_drawn_with_its_probability() -> None:
    policy = policy_for(3, gymnasium.spaces.Discrete(4), (8,), torch.Generator().manual_seed(0))
    policy.params[-1].copy_(torch.tensor([0.0, 1.0, 2.0, -3.0]))
    chosen = policy.act(np.zeros((20_000, 3)), seed=1)
    assert chosen.dtype == np.int64
    assert chosen.shape == (20_000,)
    expected = torch.softmax(policy.mean(torch.zeros(3)), dim=0).numpy()
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / 20_000, expected, atol=0.01)
    assert policy.act(np.zeros(3), deterministic=True) == expected.argmax()


# ---- parameters as one vector, state -----------------------------------------------------------------------------


def test_flatten_and_unflatten_are_inverse() -> None:
    params = make_policy().params
    vector = flatten(params)
    assert len(vector) == sum(tensor.numel() for tensor in params)
    assert torch.equal(vector[:2], params[0])  # log_std comes first
    for part, tensor in zip(unflatten(vector, params), params, strict=True):
        assert torch.equal(part, tensor)
    assert torch.equal(flatten(unflatten(vector + 1, params)), vector + 1)


def test_policy_state_round_trip_acts_the_same() -> None:
    one, other = make_policy(0), make_policy(1)
    one.normaliser.update(np.random.default_rng(0).normal(2, 3, (50, 4)))
    state = one.state_dict()
    raw = np.random.default_rng(1).normal(2, 3, (5, 4))
    expected = one.act(raw, deterministic=True)
    one.params[1] += 1  # the state is a copy
    other.load_state_dict(state)
    assert (other.act(raw, deterministic=True) == expected).all()
