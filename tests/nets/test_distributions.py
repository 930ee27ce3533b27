"""Both distributions against torch's own, in torch and in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from sbtrpo.nets.distributions import Categorical, Distribution, Gaussian

HEADS = [Gaussian(3), Categorical(4)]


def numbers(head: Distribution, seed: int) -> tuple[Any, Any, Any]:
    """Outputs of six states, log_std and actions, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn((6, head.outputs), generator=generator, dtype=torch.float64)
    log_std = 0.5 * torch.randn(head.spreads, generator=generator, dtype=torch.float64)
    noise = head.noise(torch, (6,), generator).double()
    return outputs, log_std, head.sample(torch, outputs, log_std, noise)


def reference(head: Distribution, outputs: Any, log_std: Any) -> Any:
    if head.discrete:
        return TorchCategorical(logits=outputs)  # type: ignore[no-untyped-call]
    return Independent(Normal(outputs, torch.exp(log_std)), 1)  # type: ignore[no-untyped-call]


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(HEADS), st.integers(0, 1000))
def test_log_prob_and_kl_are_those_of_torch(head: Distribution, seed: int) -> None:
    outputs, log_std, action = numbers(head, seed)
    other, other_log_std, _ = numbers(head, seed + 1)
    p, q = reference(head, outputs, log_std), reference(head, other, other_log_std)
    log_prob = head.log_prob(torch, outputs, log_std, action)
    torch.testing.assert_close(log_prob, p.log_prob(action[:, 0] if head.discrete else action))
    torch.testing.assert_close(head.kl(torch, (outputs, log_std), (other, other_log_std)), kl_divergence(p, q))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(HEADS), st.integers(0, 1000))
def test_slopes_are_those_of_autograd(head: Distribution, seed: int) -> None:
    outputs, log_std, action = numbers(head, seed)
    other = numbers(head, seed + 1)[:2]
    for value, slopes in (
        (lambda o, s: head.log_prob(torch, o, s, action), head.score(torch, outputs, log_std, action)),
        (lambda o, s: head.kl(torch, (o, s), other), head.kl_slope(torch, (outputs, log_std), other)),
    ):
        inputs = outputs.clone().requires_grad_(), log_std.clone().requires_grad_()
        in_outputs, in_log_std = torch.autograd.grad(value(*inputs).sum(), inputs, allow_unused=True)
        torch.testing.assert_close(slopes[0], in_outputs)
        if head.spreads:
            torch.testing.assert_close(slopes[1].sum(dim=0), in_log_std)
        else:
            assert slopes[1].shape == (6, 0)


@pytest.mark.parametrize("head", HEADS)
def test_the_metric_is_the_hessian_of_the_kl(head: Distribution) -> None:
    outputs, log_std, _ = numbers(head, 0)
    tangent = torch.randn((head.outputs, 2, 6), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    product = head.metric(torch, outputs, log_std, tangent)
    for state in range(6):
        here = outputs[state]
        hessian = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
            lambda o, here=here: head.kl(torch, (here, log_std), (o, log_std)), here
        )
        torch.testing.assert_close(product[:, :, state], hessian @ tangent[:, :, state])


@pytest.mark.parametrize("head", HEADS)
def test_numpy_gives_what_torch_gives(head: Distribution) -> None:
    outputs, log_std, action = numbers(head, 3)
    other = numbers(head, 4)[:2]
    plain = [part.numpy() for part in (outputs, log_std, action, *other)]
    o, s, a, oo, os = plain
    for plain_numbers, expected in (
        (head.log_prob(np, o, s, a), head.log_prob(torch, outputs, log_std, action)),
        (head.kl(np, (o, s), (oo, os)), head.kl(torch, (outputs, log_std), other)),
        (head.score(np, o, s, a)[0], head.score(torch, outputs, log_std, action)[0]),
        (head.kl_slope(np, (o, s), (oo, os))[0], head.kl_slope(torch, (outputs, log_std), other)[0]),
        (head.mode(o), head.mode(outputs)),
    ):
        np.testing.assert_allclose(plain_numbers, expected.numpy(), rtol=1e-12)


def test_extreme_logits_stay_finite() -> None:
    head = Categorical(3)
    outputs = torch.tensor([[1e4, 0.0, -1e4]])
    none = torch.zeros(0)
    assert torch.isfinite(head.log_prob(torch, outputs, none, torch.tensor([[2.0]]))).all()
    assert head.kl(torch, (outputs, none), (outputs, none)).item() == 0
