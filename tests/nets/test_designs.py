"""Networks of other activations, first weights and statistics than the published ones, and those that see images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.nets import images
from sbtrpo.nets.activations import ACTIVATIONS
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.forms import Form, TorchForm, to_numpy
from sbtrpo.nets.images import Image
from sbtrpo.nets.linearised import LinearisedChunks, linearise
from sbtrpo.nets.network import MLP, PUBLISHED, Design, flatten, make_mlp
from sbtrpo.nets.policies import Policies
from sbtrpo.nets.policy import Policy
from tests.devices import DEVICE, assert_close, double_forms

IMAGE = Image((16, 9, 2), 0, 255)
DESIGNS = [*(Design(name) for name in ACTIVATIONS), *(Design(name, image=IMAGE) for name in ACTIVATIONS)]
every_design = pytest.mark.parametrize("design", DESIGNS, ids=lambda d: f"{d.activation}{'-cnn' * bool(d.image)}")
every_activation = pytest.mark.parametrize("name", ACTIVATIONS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def network_and_rows(design: Design, rows: int = 7) -> tuple[MLP, torch.Tensor]:
    """In double precision."""
    size = 5 if design.image is None else design.image.size
    network = make_mlp([size, 6, 4, 3], generator(), "cpu", design)
    return MLP([tensor.double() for tensor in network.params], design), torch.as_tensor(numbers(rows, size))


# ---- activations -----------------------------------------------------------------------------------------------------


@every_activation
def test_an_activation_is_the_same_in_all_its_forms(name: str) -> None:
    activation, x = ACTIVATIONS[name], torch.as_tensor(numbers(5, 4))
    values = getattr(torch.nn.functional, name)(x)
    np.testing.assert_allclose(activation.on_arrays(x.numpy()), values, rtol=1e-12)
    room = np.empty_like(x.numpy())
    assert activation.on_arrays(x.numpy(), out=room) is room
    for found in (room, activation.on_tensors(x), activation.module()(x), activation.in_place(x.clone())):
        np.testing.assert_allclose(found, values, rtol=1e-12)


@every_activation
def test_slopes_are_functions_of_the_values(name: str) -> None:
    activation, x = ACTIVATIONS[name], torch.as_tensor(numbers(5, 4)).requires_grad_()
    values = activation.on_tensors(x)
    signal = torch.as_tensor(numbers(5, 4, seed=1))
    (pulled,) = torch.autograd.grad(values, x, signal)
    h = values.detach()
    torch.testing.assert_close(signal * activation.slope(h), pulled)
    np.testing.assert_allclose(signal.numpy() * activation.slope(h.numpy()), pulled)
    activation.pull(signal, h)
    torch.testing.assert_close(signal, pulled)


# ---- every consumer of a network -------------------------------------------------------------------------------------


@every_design
@pytest.mark.parametrize("heads", [1, 2])
def test_stacks_go_forward_and_backward_as_autograd_does(
    design: Design, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "ROWS", 3)  # so that images come in several pieces
    sizes = [5 if design.image is None else design.image.size, 6, 4, 3]
    x, signal = numbers(7, sizes[0]), numbers(heads, 7, 3, seed=1)
    for form in double_forms():
        stack = form.stack(heads, sizes, 2, design)
        stack.theta[:] = form.array(numbers(len(stack.theta), seed=2))
        stack.gradient[:] = 7
        activations = stack.forward(form.array(x))
        stack.backward(activations, form.array(signal))
        assert (to_numpy(stack.gradient)[:2] == 7).all()
        for head in range(heads):
            leaves = [torch.tensor(to_numpy(param[head])).requires_grad_() for param in stack.params]
            layers = [leaf[0] if k % 2 else leaf.T for k, leaf in enumerate(leaves)]
            outputs = MLP(layers, design)(torch.as_tensor(x))
            np.testing.assert_allclose(to_numpy(activations[-1][head]), outputs.detach(), atol=1e-10)
            wanted = torch.autograd.grad(outputs, leaves, torch.as_tensor(signal[head]))
            for found, gradient in zip(stack.gradients, wanted, strict=True):
                np.testing.assert_allclose(to_numpy(found[head]), gradient, rtol=1e-8, atol=1e-8)


@every_design
def test_a_network_is_linearised_as_autograd_does_it(design: Design) -> None:
    network, obs = network_and_rows(design)
    linear, params = linearise(network, obs), tuple(network.params)
    tangents = [torch.as_tensor(numbers(2, *tensor.shape)) for tensor in params]
    cotangent = torch.as_tensor(numbers(3, 2, len(obs), seed=1))
    torch.testing.assert_close(linear.output, network(obs))
    pushed, pulled = linear.pushforward(tangents), linear.pullback(cotangent)

    def outputs(*values: torch.Tensor) -> torch.Tensor:
        return MLP(list(values), design)(obs)

    for k in range(2):
        along = torch.autograd.functional.jvp(outputs, params, tuple(t[k] for t in tangents))[1]  # type: ignore[no-untyped-call]
        back = torch.autograd.functional.vjp(outputs, params, cotangent[:, k].T)[1]  # type: ignore[no-untyped-call]
        torch.testing.assert_close(pushed[:, k].T, along)
        torch.testing.assert_close(pulled[k], flatten(back))


def test_images_are_linearised_in_small_chunks() -> None:
    network, obs = network_and_rows(Design(image=IMAGE), rows=images.ROWS + 1)
    chunks = LinearisedChunks(network, obs)
    assert [len(piece.output) for _, piece in chunks] == [images.ROWS, 1]
    torch.testing.assert_close(chunks.output, network(obs))


@every_design
def test_critics_learn(design: Design) -> None:
    size = 5 if design.image is None else design.image.size
    obs = torch.as_tensor(numbers(200, size)).float()
    targets = torch.stack([obs[:, 0], 2 - obs[:, 1]])
    for form in (None, TorchForm(DEVICE)):
        critics = Critics(2, size, (32,), 3e-3, generator(), DEVICE if form else "cpu", form, design)
        first, _ = critics.fit(obs, targets, 50, 1, 0.0, 40.0, generator(1))
        last, _ = critics.fit(obs, targets, 50, 60, 0.0, 40.0, generator(1))
        assert (last < 0.3 * first).all()
        assert critics(obs.to(critics.device)).shape == (2, 200)


@every_activation
@pytest.mark.parametrize("normalise", [False, True])
def test_policies_of_other_designs_act_together_as_each_does_alone(name: str, normalise: bool) -> None:
    design = Design(name, normalise=normalise)
    alone, members = ([Policy(4, 2, (8,), generator(k), DEVICE, design=design) for k in range(3)] for _ in range(2))
    for policy in (*alone, *members):
        policy.use(TorchForm(DEVICE))
    together, obs = Policies(members, 5), torch.as_tensor(3 + numbers(15, 4)).to(DEVICE)
    together.normaliser.update(obs)
    seen = together.normaliser(obs)
    assert (seen == obs).all().item() is not normalise
    for k, policy in enumerate(alone):
        rows = slice(5 * k, 5 * k + 5)
        policy.normaliser.update(obs[rows])
        torch.testing.assert_close(seen[rows], policy.normaliser(obs[rows]))
        torch.testing.assert_close(together.mean(seen.float())[rows], policy.mean(seen[rows].float()))


# ---- first weights ---------------------------------------------------------------------------------------------------


def test_orthogonal_weights_have_their_gains_and_no_bias() -> None:
    network = make_mlp([30, 20, 10, 3], generator(), "cpu", Design(orthogonal=True))
    for k, gain in enumerate((math.sqrt(2), math.sqrt(2), 0.01)):
        weight, bias = network.params[2 * k : 2 * k + 2]
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-5, rtol=1e-4)
        assert not bias.any()


def test_critics_have_orthogonal_weights_of_their_own() -> None:
    critics = Critics(2, 30, (20,), 1e-3, generator(), design=Design(orthogonal=True))
    for weight, bias, gain in zip(critics.stack.params[::2], critics.stack.params[1::2], (2.0, 1.0), strict=True):
        for own in weight:
            np.testing.assert_allclose(own.T @ own, gain * np.eye(own.shape[1]), atol=1e-5)
        assert not bias.any()
    first, second = critics.stack.params[0]
    assert not np.allclose(first, second)


def test_the_first_deviation_is_that_of_the_design() -> None:
    assert Policy(4, 2, (8,), generator(), design=Design(log_std=-0.5)).log_std.tolist() == [-0.5, -0.5]
    assert len(Policy(4, 2, (8,), generator(), discrete=True, design=Design(log_std=-0.5)).log_std) == 0


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "device"), list(zip(double_forms(), ("cpu", DEVICE), strict=True)))
def test_without_normalisation_a_policy_sees_what_there_is(form: Form, device: str) -> None:
    plain, obs = Policy(4, 2, (8,), generator(), device, design=Design(normalise=False)), 100 * numbers(6, 4)
    plain.use(form)
    plain.normaliser.update(form.double(obs))
    np.testing.assert_array_equal(to_numpy(plain.normaliser(form.double(obs))), obs)
    expected = plain.mean(torch.as_tensor(obs, device=device).float()).clamp(-1, 1)
    np.testing.assert_allclose(plain.act(obs, deterministic=True), to_numpy(expected), rtol=1e-6)


@pytest.mark.parametrize(("form", "device"), list(zip(double_forms(), ("cpu", DEVICE), strict=True)))
def test_entries_in_units_of_their_own_stay_what_they_are(form: Form, device: str) -> None:
    """However seldom they change; the others are normalised as ever."""
    rows = [Policy(4, 2, (8,), generator(), device, design=Design(plain=plain)) for plain in (1, 0)]
    obs = numbers(500, 4)
    obs[:, 3] = [1] * 499 + [0]
    for policy in rows:
        policy.use(form)
        for part in np.split(obs, 5):
            policy.normaliser.update(form.double(part))
    seen, usual = (to_numpy(policy.normaliser(form.double(obs))) for policy in rows)
    np.testing.assert_allclose(seen[:, 3], obs[:, 3], rtol=1e-7)
    np.testing.assert_array_equal(seen[:, :3], usual[:, :3])
    assert usual[-1, 3] < -20
    rows[0].load_state_dict(rows[1].state_dict())
    rows[0].normaliser.update(form.double(obs))
    np.testing.assert_allclose(to_numpy(rows[0].normaliser(form.double(obs)))[:, 3], obs[:, 3], rtol=1e-7)


def test_pixels_go_from_their_bounds_to_one() -> None:
    policy = Policy(IMAGE.size, 2, (8,), generator(), design=Design(image=IMAGE))
    rows = np.stack([np.full(IMAGE.size, 0.0), np.full(IMAGE.size, 255.0), np.full(IMAGE.size, 127.5)])
    policy.normaliser.update(rows)
    np.testing.assert_allclose(policy.normaliser(rows)[:, 0], [-1, 1, 0], atol=1e-12)


# ---- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "sides", "layers", "features"),
    [
        ((64, 64, 3), (64, 64), [(48, 16), (256, 32), (512, 32)], 2048),
        ((4, 84, 84), (84, 84), [(64, 16), (256, 32), (512, 32)], 3200),
        ((16, 31), (16, 31), [(16, 16), (256, 32)], 32 * 4 * 7),
        ((8, 40, 1), (8, 40), [(16, 16)], 16 * 4 * 20),
    ],
)
def test_convolutions_halve_the_sides(
    shape: tuple[int, ...], sides: tuple[int, int], layers: list[tuple[int, int]], features: int
) -> None:
    image = Image(shape, 0, 1)
    assert (image.sides, image.layers, image.features) == (sides, layers, features)
    design = Design(image=image)
    assert make_mlp([image.size, 5, 2], generator(), "cpu", design)(torch.zeros(3, image.size)).shape == (3, 2)
    assert Image.from_dict(image.as_dict()) == image


def test_an_image_is_seen_alike_with_channels_first_and_last() -> None:
    pixels = numbers(4, 3, 16, 20)
    first, last = Image((3, 16, 20), 0, 1), Image((16, 20, 3), 0, 1)
    network = make_mlp([first.size, 5, 2], generator(), "cpu", Design(image=first))
    rows = torch.as_tensor(pixels).float()
    there = MLP(network.params, Design(image=last))(rows.movedim(1, -1).flatten(1))
    torch.testing.assert_close(there, network(rows.flatten(1)))


def test_images_may_be_given_in_their_shape() -> None:
    policy, pixels = Policy(IMAGE.size, 2, (8,), generator(), design=Design(image=IMAGE)), 99 * numbers(3, *IMAGE.shape)
    actions = policy.act(pixels, deterministic=True)
    np.testing.assert_array_equal(actions, policy.act(pixels.reshape(3, -1), deterministic=True))
    np.testing.assert_allclose(policy.act(pixels[0], deterministic=True), actions[0], rtol=1e-5)
    assert_close(policy.act_tensor(torch.as_tensor(pixels), deterministic=True), actions)
    with pytest.raises(ValueError, match=r"observation must have the shape \(288,\)"):
        policy.act(pixels[:, :8])


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="have 288 pixels, and observations 5"):
        Policy(5, 2, (8,), generator(), design=Design(image=IMAGE))


def test_the_published_design_is_the_default() -> None:
    assert Design("tanh", False, 0.0, True, None) == PUBLISHED
