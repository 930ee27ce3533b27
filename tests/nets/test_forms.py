"""NumPy's form and torch's compute the same, and each goes on from the other's state."""

from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.nets import forms
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.forms import Form, NumpyForm, TorchForm, acting_form, chunks, minibatch_form, rows_per_minibatch
from sbtrpo.nets.normaliser import Normaliser, TensorNormaliser
from sbtrpo.nets.policy import Policy
from tests.devices import DEVICE, assert_close, double_forms


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


# ---- which form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [acting_form, minibatch_form])
def test_a_gpu_always_holds_tensors(rule: Any) -> None:
    for size in (1, 20, 10**6):
        assert isinstance(rule("cuda:1", size), TorchForm)
        assert rule("cuda:1", size).device == "cuda:1"


def test_few_worlds_on_the_host_are_acted_in_there_though_the_learner_is_on_a_gpu() -> None:
    few, many = (acting_form("cuda:1", n, on_host=True) for n in (20, forms.MANY_WORLDS))
    assert isinstance(few, NumpyForm)
    assert isinstance(many, TorchForm)
    assert many.device == "cuda:1"
    assert isinstance(acting_form("cuda:1", 20, on_host=True, weights=10**6), TorchForm)


@pytest.mark.parametrize("threads", [1, 2, 8, 16])
def test_the_cpu_holds_tensors_where_there_is_much_to_do_and_threads_to_share_it(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert isinstance(acting_form("cpu", 20), NumpyForm)
    for rows in (64, 128, 256):  # as published
        assert isinstance(minibatch_form("cpu", rows), NumpyForm)
    for form in (acting_form("cpu", forms.MANY_WORLDS), minibatch_form("cpu", forms.MANY_ROWS)):
        assert isinstance(form, TorchForm if threads in (2, 8) else NumpyForm)


@pytest.mark.parametrize(
    ("batch", "count", "samples", "rows"),
    [(64, 0, 20_000, 64), (64, 4, 20_000, 5000), (64, 3, 20_000, 6667), (64, 1, 50, 50), (64, 0, 50, 50)],
)
def test_minibatches_are_given_by_their_rows_or_by_their_count(batch: int, count: int, samples: int, rows: int) -> None:
    assert rows_per_minibatch(batch, count, samples) == rows
    if count:
        assert -(-samples // rows) == count


def test_chunks_hold_every_row_once() -> None:
    assert chunks(0) == []
    assert chunks(forms.CHUNK) == [slice(0, forms.CHUNK)]
    pieces = chunks(3 * forms.CHUNK + 7)
    assert len(pieces) == 4
    assert sum(piece.stop - piece.start for piece in pieces) == 3 * forms.CHUNK + 7


# ---- networks and Adam ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("sizes", [[5, 7, 6, 1], [5, 8, 3], [4, 6, 5, 3, 2], [3, 1]])
def test_stacks_agree_forward_and_backward(heads: int, sizes: list[int]) -> None:
    gradients, outputs = [], []
    x, signal = numbers(11, sizes[0]), numbers(heads, 11, sizes[-1], seed=1)
    for form in double_forms():
        stack = form.stack(heads, sizes, extra=3)
        stack.theta[:] = form.array(numbers(len(stack.theta), seed=2))
        stack.gradient[:] = 7
        activations = stack.forward(form.array(x))
        outputs.append(activations[-1])
        stack.backward(activations, form.array(signal))
        gradients.append(stack.gradient)
        assert [tuple(param.shape) for param in stack.params] == [tuple(g.shape) for g in stack.gradients]
    assert_close(*outputs)
    assert_close(*gradients)
    assert (forms.to_numpy(gradients[1])[:3] == 7).all()


def test_adams_agree_and_go_on_from_each_others_state() -> None:
    one, other = double_forms()
    thetas = [form.array(numbers(30)) for form in (one, other)]
    adams = [form.adam(30) for form in (one, other)]
    for step in range(20):
        gradient, rate = numbers(30, seed=step) * 10.0 ** (step % 5 - 3), 1e-2 * (1 - step / 20)
        for form, theta, adam in zip((one, other), thetas, adams, strict=True):
            adam.step(theta, form.array(gradient.copy()), rate)
        if step == 10:  # change places
            states = [adam.state_dict() for adam in adams]
            for adam, state in zip(adams, reversed(states), strict=True):
                adam.load_state_dict(state)
    assert_close(*thetas)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, np.nan])
@pytest.mark.parametrize("beside", [0.0, 2.0])
def test_clipping_agrees(scale: float, beside: float) -> None:
    clipped, factors = [], []
    for form in double_forms():
        gradients = [form.array(scale * numbers(9)), form.array(scale * numbers(4, seed=1))]
        factors.append(float(form.clip(gradients, 5.0, beside)))
        clipped.append(form.join(gradients))
    np.testing.assert_allclose(factors[0], factors[1], rtol=1e-12)
    assert_close(*clipped)


# ---- statistics of observations ------------------------------------------------------------------------------------


def test_normalisers_agree_and_go_on_from_each_others_state() -> None:
    one, other = Normaliser(4), TensorNormaliser(4, DEVICE)
    for seed, size in enumerate((3, 1, 50)):
        batch = 3 + 5 * numbers(size, 4, seed=seed)
        one.update(batch)
        other.update(torch.tensor(batch, device=DEVICE))
    assert one.count == other.count
    assert_close(one.mean, other.mean)
    assert_close(one.var, other.var)
    raw = numbers(6, 4)
    assert_close(one(raw), other(torch.tensor(raw, device=DEVICE)))
    saved = other.state_dict()
    again, further = Normaliser(4), TensorNormaliser(4, DEVICE)
    again.load_state_dict(saved)
    further.load_state_dict(one.state_dict())
    other.update(torch.ones((2, 4), device=DEVICE))  # a saved state stays
    assert_close(again(raw), one(raw))
    assert_close(further(torch.tensor(raw, device=DEVICE)), one(raw))


# ---- critics -------------------------------------------------------------------------------------------------------


def critics(form: Form, seed: int = 0) -> Critics:
    return Critics(2, 6, (16, 8), 1e-3, torch.Generator().manual_seed(seed), form.device, form)


@pytest.mark.parametrize("max_norm", [40.0, 0.5])
@pytest.mark.parametrize("weights", [None, (2.0, 1.0)])
def test_critics_fit_alike(max_norm: float, weights: tuple[float, float] | None) -> None:
    obs, targets = torch.from_numpy(numbers(330, 6)), torch.from_numpy(5 * numbers(2, 330, seed=1))
    values, results = [], []
    for form in double_forms():
        here = critics(form)
        orders = torch.Generator().manual_seed(3)
        results.append(here.fit(obs, targets, 64, 3, 1e-3, max_norm, orders, weights))
        values.append(here(obs.to(DEVICE)))
        assert here(obs[:0]).shape == (2, 0)
        assert str(values[-1].device).startswith(here.device)
    assert_close(*values)
    (losses, norm), (other_losses, other_norm) = results
    assert_close(losses, other_losses, 1e-6)  # reported in single precision
    assert norm == pytest.approx(other_norm, rel=1e-9)


def test_critics_change_their_form_and_go_on() -> None:
    obs, targets = torch.from_numpy(numbers(100, 6)), torch.from_numpy(numbers(2, 100, seed=1))
    numpy, tensors = double_forms()
    staying, moving = critics(numpy), critics(numpy)
    orders, other_orders = (torch.Generator().manual_seed(3) for _ in range(2))
    for form in (tensors, numpy, tensors):
        staying.fit(obs, targets, 32, 2, 1e-3, 40.0, orders)
        moving.use(form)
        moving.fit(obs, targets, 32, 2, 1e-3, 40.0, other_orders)
        assert_close(staying(obs), moving(obs).cpu())
    assert staying.state_dict().keys() == moving.state_dict().keys()
    assert all(isinstance(moving.state_dict()[name], np.ndarray) for name in ("params", "mean", "square"))
    assert staying.state_dict()["steps"] == moving.state_dict()["steps"] == 24


def test_initial_weights_do_not_depend_on_the_form() -> None:
    one, other = NumpyForm(), TorchForm(DEVICE)
    np.testing.assert_array_equal(critics(one).state_dict()["params"], critics(other).state_dict()["params"])


@pytest.mark.parametrize("form", [NumpyForm(), TorchForm(DEVICE)])
def test_very_many_rows_are_judged_in_chunks(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    here = critics(form)
    obs = torch.from_numpy(numbers(90, 6)).float()
    whole = here(obs)
    monkeypatch.setattr(forms, "CHUNK", 40)
    sizes: list[int] = []
    forward = here.stack.forward

    def watched(x: Any) -> Any:
        sizes.append(len(x))
        return forward(x)

    monkeypatch.setattr(here.stack, "forward", watched)
    assert_close(here(obs), whole, 1e-6)
    assert sizes == [40, 40, 10]


# ---- acting --------------------------------------------------------------------------------------------------------


def acting(form: Form, discrete: bool) -> Policy:
    low, high = (None, None) if discrete else (np.array([0.0, -2.0]), np.array([10.0, 2.0]))
    actions = 3 if discrete else 2
    policy = Policy(
        4, actions, (8, 6), torch.Generator().manual_seed(0), form.device, discrete=discrete, low=low, high=high
    )
    policy.params = [tensor.double() for tensor in policy.params]
    policy.use(form)
    policy.normaliser.update(form.double(3 + 2 * numbers(50, 4)))
    return policy


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
def test_policies_act_alike_in_both_forms(discrete: bool, deterministic: bool) -> None:
    raw = 3 + 2 * numbers(40, 4, seed=1)
    one, other = (acting(form, discrete) for form in double_forms())
    expected = one.act(raw, deterministic, seed=5)
    assert_close(other.act(raw, deterministic, seed=5), expected)
    there = other.act_tensor(torch.tensor(raw, device=DEVICE), deterministic, torch.Generator().manual_seed(5))
    assert there.device.type == torch.device(DEVICE).type
    assert_close(there, expected)
    here = one.act_tensor(torch.from_numpy(raw), deterministic, torch.Generator().manual_seed(5))
    assert_close(here, expected)
    assert there.dtype == (torch.int64 if discrete else torch.float64)


def test_bounds_of_actions_follow_a_loaded_state() -> None:
    form = TorchForm(DEVICE, torch.float64)
    one, other = acting(form, False), acting(form, False)
    action = torch.ones((1, 2), dtype=torch.float64, device=DEVICE)
    assert one.to_env(action).tolist() == [[10.0, 2.0]]
    state = other.state_dict()
    state["high"] = np.array([20.0, 4.0])
    one.load_state_dict(state)
    assert one.to_env(action).tolist() == [[20.0, 4.0]]
