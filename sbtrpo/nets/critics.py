"""Value functions of reward and costs, fitted together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import Form, chunks, minibatch_form, to_numpy
from sbtrpo.nets.network import CRITIC_GAIN, HIDDEN_GAIN, PUBLISHED, Design


class Critics:
    """K value networks of one shape.

    Args:
        heads: K.
        observation_size: of the networks' inputs.
        hidden: widths of the hidden layers.
        learning_rate: of Adam.
        generator: of the initial weights, on the CPU.
        device: where values go.
        form: of networks and minibatches; that of small minibatches if left out. A method that knows its minibatches
            sets another one with `use`.
        design: of the networks.
    """

    def __init__(
        self, heads: int, observation_size: int, hidden: Sequence[int], learning_rate: float,
        generator: torch.Generator, device: str = "cpu", form: Form | None = None, design: Design = PUBLISHED,
    ) -> None:  # fmt: skip
        self.heads, self.learning_rate, self.device, self._design = heads, learning_rate, device, design
        self._sizes = [observation_size, *hidden, 1]
        self._take(form or minibatch_form(device, rows=0))
        if design.orthogonal:
            self._draw_orthogonal(generator)
            return
        widths = [inputs for inputs, _ in self.stack.layers for _ in range(2)]
        for param, inputs in zip(self.stack.params, widths, strict=True):
            uniform = torch.rand(tuple(param.shape), generator=generator) * 2 - 1
            param[:] = self.form.array(uniform.numpy() / math.sqrt(inputs))

    def _draw_orthogonal(self, generator: torch.Generator) -> None:
        """The first weights; biases are 0 already."""
        layers = self.stack.layers
        gains = [HIDDEN_GAIN] * (len(layers) - 1) + [CRITIC_GAIN]
        for weight, (inputs, outputs), gain in zip(self.stack.params[::2], layers, gains, strict=True):
            for own in weight:
                own[:] = self.form.array(self._design.draw(inputs, outputs, gain, generator)[0].T)

    def _take(self, form: Form) -> None:
        self.form, self.stack = form, form.stack(self.heads, self._sizes, design=self._design)
        self.adam = form.adam(len(self.stack.theta))

    def use(self, form: Form) -> None:
        """Go on in another form."""
        state = self.state_dict()
        self._take(form)
        self.load_state_dict(state)

    def __call__(self, obs: Tensor) -> Tensor:
        """Values of observations (..., obs_dim): (K, ...)."""
        rows = self.form.array(obs.reshape(-1, obs.shape[-1]))
        values = [self.stack.forward(rows[piece])[-1] for piece in chunks(len(rows))]
        whole = self.form.join(values, axis=1) if values else self.form.zeros((self.heads, 0))
        return self.form.tensor(whole.reshape(self.heads, *obs.shape[:-1])).to(self.device)

    def rescale(self, ratio: Array, shift: Array) -> None:
        """Stay the same functions where a normalised observation x is from now on (x - shift) / ratio: (obs_dim,)."""
        double, (weight, bias) = self.form.double, self.stack.params[:2]
        before = double(weight)
        bias[:] = self.form.array(double(bias) + double(shift)[None] @ before)
        weight[:] = self.form.array(before * double(ratio)[:, None])

    def backward(self, x: Array, y: Array, l2: float, weights: Array | None = None) -> Array:
        """Fill the stack's gradient with that of Σ_k w_k (mean (V_k(x) - y_k)² + l2 ‖params_k‖²).

        Args:
            x: (n, obs_dim)
            y: (K, n)
            l2: weight of the sum of squared parameters in each head's loss.
            weights: (K,) of the heads; all 1 if left out.

        Returns:
            The errors V(x) - y, (K, n).
        """
        error = regress(self.stack, x, y, l2)
        if weights is not None:
            for gradient in self.stack.gradients:
                gradient *= weights[:, None, None]
        return error

    def step(self) -> None:
        """One step of Adam along the stack's gradient."""
        self.adam.step(self.stack.theta, self.stack.gradient, self.learning_rate)

    def fit(
        self,
        obs: Tensor,
        targets: Tensor,
        batch: int,
        passes: int,
        l2: float,
        max_norm: float,
        generator: torch.Generator,
        weights: Sequence[float] | None = None,
    ) -> tuple[Tensor, float]:
        """Regress each head on its targets.

        Args:
            obs: (B, obs_dim).
            targets: (K, B).
            batch: size of the minibatches; the last one may be smaller.
            passes: over the data, each in a fresh order.
            l2: weight of the sum of squared parameters in each head's loss.
            max_norm: bound on the gradient's norm, over all heads together.
            generator: of the orders, on the CPU.
            weights: of the heads' losses; all 1 if left out.

        Returns:
            (K,) mean squared errors in the last pass, on the CPU, and the norm of the last gradient.
        """
        form, x, y = self.form, self.form.array(obs), self.form.array(targets)
        factors = None if weights is None else form.array(torch.tensor(weights))
        squares = form.double(form.zeros((self.heads,)))
        norm = 0.0

        def slope(x: Array, y: Array) -> None:
            squares[:] += form.square_sums(self.backward(x, y, l2, factors))
            form.clip([self.stack.gradient], max_norm)

        def learn(rows: Array) -> None:
            slope(x[rows], y[:, rows])
            self.step()

        replayed = form.replayed(learn, batch) if self._design.image is None else None
        with form.calm():
            for _ in range(passes):
                order = form.order(len(x), generator)
                squares[:] = 0
                if replayed is not None:
                    replayed.over(order)
                    continue
                shuffled_x, shuffled_y = x[order], y[:, order]
                for start in range(0, len(x), batch):
                    slope(shuffled_x[start : start + batch], shuffled_y[:, start : start + batch])
                    if start + batch >= len(x):
                        norm = float(form.xp.linalg.norm(self.stack.gradient))
                    self.step()
        if replayed is not None:
            norm = float(form.xp.linalg.norm(self.stack.gradient))
        return torch.from_numpy(to_numpy(squares / len(x))).float(), norm

    def set(self, theta: Any) -> None:
        """Take over the weights of others, as `state_dict` has them; Adam stays as it is."""
        self.stack.theta[:] = self.form.array(theta)

    def state_dict(self) -> dict[str, Any]:
        """Weights and Adam's state, as NumPy arrays in either form."""
        return {"params": to_numpy(self.stack.theta).copy(), **self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.set(state["params"])
        self.adam.load_state_dict(state)


def regress(stack: Any, x: Array, y: Array, l2: float = 0.0) -> Array:
    """Fill a stack's gradient with that of every network's mean squared error and penalty; returns errors, (K, n)."""
    activations = stack.forward(x)
    error = activations[-1][..., 0] - y
    stack.backward(activations, (error * (2 / y.shape[1]))[..., None])
    if l2:
        stack.gradient += (2 * l2) * stack.theta
    return error


def critic_losses(losses: Tensor, names: Sequence[str] = ("c",)) -> dict[str, float]:
    """The critics' mean squared errors by name; there may be one for reward alone."""
    return {f"critic_loss_{name}": float(loss) for name, loss in zip(("r", *names), losses, strict=False)}
