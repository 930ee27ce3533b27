"""What `stack.py` and `linearised.py` write out, by autograd: for networks with convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sbtrpo.nets.distributions import Array
from sbtrpo.nets.images import pieces
from sbtrpo.nets.network import MLP, Design, flatten
from sbtrpo.nets.stack import count, views

if TYPE_CHECKING:
    from sbtrpo.nets.forms import Form


class AutogradStack:
    """K networks of one shape as in `Stack`, in the arrays of either form."""

    def __init__(self, form: Form, heads: int, sizes: Sequence[int], extra: int, design: Design) -> None:
        self.heads, self.extra, self._form, self._design = heads, extra, form, design
        self.layers = design.layers(sizes)
        self.theta, self.gradient = (form.zeros((extra + count(heads, self.layers),)) for _ in range(2))
        self.params, self.gradients = (views(v, extra, heads, self.layers) for v in (self.theta, self.gradient))

    def _leaves(self, head: int) -> list[Tensor]:
        """Weight (in, out), bias (1, out), ... of a network; they share the stack's memory."""
        return [self._form.tensor(param)[head].detach() for param in self.params]

    def network(self, leaves: Sequence[Tensor]) -> MLP:
        """The network that has these parameters."""
        return MLP([leaf[0] if k % 2 else leaf.T for k, leaf in enumerate(leaves)], self._design)

    @torch.no_grad()
    def forward(self, x: Array) -> list[Array]:
        """Inputs (n, in) and outputs (K, n, out)."""
        rows, networks = self._form.tensor(x), [self.network(self._leaves(k)) for k in range(self.heads)]
        outputs = [torch.cat([network(rows[piece]) for piece in pieces(len(rows))]) for network in networks]
        return [x, self._form.array(torch.stack(outputs))]

    def backward(self, activations: Sequence[Array], signal: Array) -> None:
        """Fill `gradient` (but its extra entries) from the loss's slope in the outputs, (K, n, out)."""
        x, slopes = self._form.tensor(activations[0]), self._form.tensor(signal)
        self.gradient[self.extra :] = 0
        for head in range(self.heads):
            leaves = [leaf.requires_grad_() for leaf in self._leaves(head)]
            for piece in pieces(len(x)):
                with torch.enable_grad():
                    outputs = self.network(leaves)(x[piece])
                for mine, found in zip(
                    self.gradients, torch.autograd.grad(outputs, leaves, slopes[head, piece]), strict=True
                ):
                    mine[head] += self._form.array(found)


class AutogradLinearised:
    """The network on the observations (B, obs_dim) as a linear map of its parameters; see `Linearised`.

    Nothing is kept but the outputs: every pass goes through the network again.
    """

    size = 0

    def __init__(self, network: MLP, obs: Tensor) -> None:
        self._network, self._obs = network, obs
        self.output = network(obs)

    def _outputs(self, *params: Tensor) -> Tensor:
        return MLP(list(params), self._network.design)(self._obs)

    def pushforward(self, tangents: Sequence[Tensor]) -> Tensor:
        """J v: tangents shaped as the parameters with K in front -> (outputs, K, B)."""
        params = tuple(self._network.params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what torch itself uses there
            pushed = [torch.func.jvp(self._outputs, params, one)[1] for one in zip(*tangents, strict=True)]
        return torch.stack(pushed).permute(2, 0, 1).contiguous()

    def pullback(self, cotangent: Tensor) -> Tensor:
        """Jᵀ u: (outputs, K, B) -> (K, P), gradients in the order of the parameters."""
        pull = torch.func.vjp(self._outputs, *self._network.params)[1]
        return torch.stack([flatten(pull(one.T)) for one in cotangent.unbind(1)])
