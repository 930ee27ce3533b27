import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sbtrpo.nets.critics import Critics
from sbtrpo.nets.stack import Adam, Stack, clip_together

Floats = NDArray[np.float32]


def vector(size: int, seed: int = 0, scale: float = 1.0) -> Floats:
    return (scale * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


# ---- Adam ----------------------------------------------------------------------------------------------------------


def test_adam_is_pytorchs_with_a_rate_that_changes() -> None:
    adam, theta = Adam(30), vector(30)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    theirs = torch.optim.Adam([parameter])
    for step in range(50):
        gradient, rate = vector(30, step, 10.0 ** (step % 5 - 3)), 1e-2 * (1 - step / 50)
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
        adam.step(theta, gradient, rate)
    np.testing.assert_allclose(theta, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_adam_without_a_gradient_does_not_move() -> None:
    adam, theta = Adam(3), vector(3)
    before = theta.copy()
    adam.step(theta, np.zeros(3, np.float32), 0.1)
    assert (theta == before).all()


# ---- clipping ------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.floats(0.01, 100), st.floats(0.01, 100))
def test_clipping_together_is_pytorchs(sizes: list[int], scale: float, bound: float) -> None:
    gradients = [vector(size, seed, scale) for seed, size in enumerate(sizes)]
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.from_numpy(gradient.copy())
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, bound))
    factor = clip_together(gradients, bound)
    assert factor == pytest.approx(min(1.0, bound / (norm + 1e-6)), rel=1e-5)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(gradient, parameter.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("beside", "factor"), [(0.0, 1.0), (11.9, 1.0), (12.1, 13 / math.hypot(5, 12.1)), (1e3, 0.013)]
)
def test_a_norm_beside_counts_but_only_the_gradients_shrink(beside: float, factor: float) -> None:
    gradient = np.array([3.0, 4.0], np.float32)
    assert clip_together([gradient], 13.0, beside) == pytest.approx(factor, rel=1e-4)
    np.testing.assert_allclose(gradient, factor * np.array([3.0, 4.0]), rtol=1e-4)


def test_clipping_leaves_small_gradients_as_they_are() -> None:
    gradients = [vector(5, scale=1e-3), np.zeros(2, np.float32)]
    before = [gradient.copy() for gradient in gradients]
    assert clip_together(gradients, 40.0) == 1.0
    assert all((a == b).all() for a, b in zip(gradients, before, strict=True))


# ---- stacks and critics' heads -------------------------------------------------------------------------------------


def test_a_stack_keeps_room_in_front_of_its_networks() -> None:
    stack = Stack(heads=2, sizes=[3, 4, 1], extra=5)
    assert len(stack.theta) == 5 + 2 * (3 * 4 + 4 + 4 + 1)
    stack.theta[:5] = 7
    assert all((param == 0).all() for param in stack.params)
    stack.gradient[:5] = 3
    stack.backward(stack.forward(vector(12).reshape(4, 3)), np.ones((2, 4, 1), np.float32))
    assert (stack.gradient[:5] == 3).all()


@pytest.mark.parametrize("weights", [None, (2.0, 1.0), (0.0, 3.0)])
def test_heads_weights_are_those_of_their_losses(weights: tuple[float, float] | None) -> None:
    critics = Critics(2, 3, (5, 4), 1e-3, torch.Generator().manual_seed(0))
    x, y = vector(36, 1).reshape(12, 3), vector(24, 2).reshape(2, 12)
    critics.backward(x, y, 0.01, None if weights is None else np.asarray(weights, np.float32))
    params = [torch.from_numpy(param.copy()).requires_grad_() for param in critics.stack.params]
    h = torch.from_numpy(x)[None].expand(2, -1, -1)
    for layer in range(0, len(params), 2):
        h = (torch.tanh(h) if layer else h) @ params[layer] + params[layer + 1]
    squares = torch.stack([sum((param[k] ** 2).sum() for param in params) for k in range(2)])  # type: ignore[misc]
    losses = ((h[..., 0] - torch.from_numpy(y)) ** 2).mean(dim=1) + 0.01 * squares
    (losses * torch.tensor(weights or (1.0, 1.0))).sum().backward()  # type: ignore[no-untyped-call]
    for gradient, param in zip(critics.stack.gradients, params, strict=True):
        assert param.grad is not None
        np.testing.assert_allclose(gradient, param.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_fitting_reports_the_norm_of_its_last_gradient() -> None:
    x, y = torch.from_numpy(vector(60).reshape(20, 3)), torch.from_numpy(vector(40, 1, 9.0).reshape(2, 20))
    norms = []
    for bound in (math.inf, 0.5):
        critics = Critics(2, 3, (5,), 1e-3, torch.Generator().manual_seed(0))
        orders = torch.Generator().manual_seed(0)
        norms.append(critics.fit(x, y, 20, 1, 0.0, bound, orders)[1])
        assert critics.fit(x, y, 7, 3, 0.0, bound, orders, weights=(2.0, 1.0))[1] > 0
    critics = Critics(2, 3, (5,), 1e-3, torch.Generator().manual_seed(0))
    critics.backward(x.numpy(), y.numpy(), 0.0)  # one minibatch: the order of the sum aside, the same gradient
    assert norms[0] == pytest.approx(float(np.linalg.norm(critics.stack.gradient)), rel=1e-4)
    assert norms[1] == pytest.approx(0.5, rel=1e-4)
