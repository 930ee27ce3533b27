import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import Tensor, nn

from sbtrpo.nets.critics import Critics
from sbtrpo.nets.stack import one_blas_thread

OBSERVATION = 6


def make_critics(heads: int = 2, hidden: tuple[int, ...] = (16, 8), seed: int = 0) -> Critics:
    return Critics(heads, OBSERVATION, hidden, 1e-3, torch.Generator().manual_seed(seed))


def make_data(heads: int = 2, size: int = 330) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    obs = torch.randn((size, OBSERVATION), generator=generator)
    return obs, torch.randn((heads, size), generator=generator) + obs[:, 0]


def as_module(critics: Critics, head: int) -> nn.Sequential:
    """One head as PyTorch would write it."""
    layers: list[nn.Module] = []
    for weight, bias in zip(critics.stack.params[::2], critics.stack.params[1::2], strict=True):
        layer = nn.Linear(*weight.shape[1:])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight[head].T))
            layer.bias.copy_(torch.from_numpy(bias[head, 0]))
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def fit_modules(
    networks: list[nn.Sequential], obs: Tensor, targets: Tensor, orders: torch.Generator, max_norm: float
) -> list[float]:
    """One pass in minibatches of 128: the published code's losses, joint clipping and separate Adams."""
    optimisers = [torch.optim.Adam(network.parameters(), lr=1e-3) for network in networks]
    everything = [parameter for network in networks for parameter in network.parameters()]
    errors = [0.0] * len(networks)
    for rows in torch.split(torch.randperm(len(obs), generator=orders), 128):
        total = torch.zeros(())
        for head, network in enumerate(networks):
            mse = nn.functional.mse_loss(network(obs[rows])[:, 0], targets[head, rows])
            total = total + mse + sum(1e-3 * parameter.pow(2).sum() for parameter in network.parameters())
            errors[head] += float(mse.detach()) * len(rows) / len(obs)
        for optimiser in optimisers:
            optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(everything, max_norm)
        for optimiser in optimisers:
            optimiser.step()
    return errors


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("hidden", [(16, 8), (8,), (5, 6, 7)])
def test_batched_heads_equal_separate_networks(heads: int, hidden: tuple[int, ...]) -> None:
    critics = make_critics(heads, hidden)
    obs = make_data()[0].view(33, 10, OBSERVATION)
    expected = torch.stack([as_module(critics, head)(obs)[..., 0] for head in range(heads)])
    torch.testing.assert_close(critics(obs), expected)


@pytest.mark.parametrize("max_norm", [40.0, 0.5])
@pytest.mark.parametrize("hidden", [(16, 8), (8,), (5, 6, 7)])
@pytest.mark.parametrize("heads", [1, 2])
def test_fitting_equals_separate_networks_fitted_with_autograd(
    heads: int, hidden: tuple[int, ...], max_norm: float
) -> None:
    critics = make_critics(heads, hidden)
    obs, targets = make_data(heads)
    if max_norm == 40.0:
        targets = 50 * targets  # so that even the bound of 40 is felt
    networks = [as_module(critics, head) for head in range(heads)]
    losses, _ = critics.fit(obs, targets, 128, 1, 1e-3, max_norm, torch.Generator().manual_seed(3))
    errors = fit_modules(networks, obs, targets, torch.Generator().manual_seed(3), max_norm)
    assert losses.tolist() == pytest.approx(errors, rel=1e-5)
    for head, network in enumerate(networks):
        for ours, theirs in zip(critics.stack.params, network.parameters(), strict=True):
            ours_as_theirs = torch.from_numpy(ours[head].T.reshape(theirs.shape).copy())
            torch.testing.assert_close(ours_as_theirs, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_initial_weights_are_as_pytorch_draws_them() -> None:
    critics = Critics(2, 100, (64, 64), 1e-3, torch.Generator().manual_seed(0))
    for weight, bias, inputs in zip(critics.stack.params[::2], critics.stack.params[1::2], (100, 64, 64), strict=True):
        assert np.abs(weight).max() <= inputs**-0.5
        assert float(weight.std()) == pytest.approx(inputs**-0.5 / 3**0.5, rel=0.1)
        assert np.abs(bias).max() <= inputs**-0.5
    assert (critics.stack.params[0][0] != critics.stack.params[0][1]).any()


def test_fitting_learns_what_there_is_to_learn() -> None:
    critics = make_critics()
    obs = make_data(size=1000)[0]
    targets = torch.stack([obs[:, 0], 2 - obs[:, 1] ** 2])
    first, last = (critics.fit(obs, targets, 32, passes, 0.0, 40.0, torch.Generator())[0] for passes in (1, 60))
    assert (last < 0.3 * first).all()


def test_a_loaded_state_continues_identically() -> None:
    obs, targets = make_data()
    orders = torch.Generator().manual_seed(1)
    critics, other = make_critics(), make_critics(seed=9)
    other.load_state_dict(critics.state_dict())  # before any step there are no moments
    for _ in range(2):
        critics.fit(obs, targets, 128, 2, 1e-3, 40.0, orders)
        state, position = critics.state_dict(), orders.get_state()
        losses, norm = critics.fit(obs, targets, 128, 2, 1e-3, 40.0, orders)
        other.load_state_dict(state)
        orders.set_state(position)
        again = other.fit(obs, targets, 128, 2, 1e-3, 40.0, orders)
        assert torch.equal(again[0], losses)
        assert again[1] == norm
        assert all((a == b).all() for a, b in zip(other.stack.params, critics.stack.params, strict=True))


def test_a_saved_state_does_not_change_with_the_critics() -> None:
    obs, targets = make_data()
    critics = make_critics()
    critics.fit(obs, targets, 128, 1, 1e-3, 40.0, torch.Generator())
    state = critics.state_dict()
    before = {name: np.array(values) for name, values in state.items()}
    critics.fit(obs, targets, 128, 1, 1e-3, 40.0, torch.Generator())
    assert all((values == before[name]).all() for name, values in state.items())
    assert state["steps"] == 3


def test_threads_of_numpy_are_given_back() -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = threads()
    with one_blas_thread():
        assert threads() == {1}
    assert threads() == before
