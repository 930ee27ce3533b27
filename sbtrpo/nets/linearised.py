"""A network at fixed parameters and inputs, as a linear map of its parameters, in chunks of bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from sbtrpo.nets.by_autograd import AutogradLinearised
from sbtrpo.nets.images import ROWS
from sbtrpo.nets.network import MLP

CHUNK = 65_536
"""Samples that are linearised together."""
BUDGET = 2**30
"""Bytes of linearisations that are kept; chunks beyond it are linearised whenever they are needed."""
PIECES = 64
"""Sums over samples of several networks run in so many pieces on a GPU, which few large matrices do not keep busy."""


class Linearised:
    """The network on the observations (B, obs_dim), as a linear map of its parameters.

    With x_l the input of layer l, and s_lj = ∂ output_j / ∂ (W_l x_l + b_l) a vector of each sample, all fixed,

        (J v)_j = Σ_l ⟨s_lj, dW_l x_l + db_l⟩        and        (Jᵀu)_l = Σ_samples (Σ_j u_j s_lj) [x_l, 1]ᵀ,

    so a pass is one matrix product per layer. There are few outputs; K vectors pass through together.
    """

    def __init__(self, network: MLP, obs: Tensor) -> None:
        params, activation = network.params, network.design.function
        activations = [obs]
        for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
            activations.append(activation.on_tensors(torch.nn.functional.linear(activations[-1], weight, bias)))
        self.output = torch.nn.functional.linear(activations[-1], params[-2], params[-1])
        """(B, outputs)"""
        one = torch.ones_like(obs[:, :1])
        self.inputs = [torch.cat([x, one], dim=1) for x in activations]
        """[x_l, 1] of every layer: (B, in + 1) each; with it a bias is one more column of its weight."""
        self.signals: list[list[Tensor]] = []
        """s_lj of every layer but the last and every output: (B, out) each. In the last, s_lj is the unit vector j."""
        signal = [row.expand(len(obs), -1) for row in params[-2]]
        for layer in range(len(activations) - 1, 0, -1):
            slope = activation.slope(activations[layer])
            signal = [s * slope for s in signal]
            self.signals.insert(0, signal)
            signal = [s @ params[2 * layer - 2] for s in signal] if layer > 1 else []

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return sum(x.nbytes for x in [*self.inputs, *(s for signal in self.signals for s in signal)])

    def pushforward(self, tangents: Sequence[Tensor]) -> Tensor:
        """J v: tangents shaped as the parameters with K in front -> (outputs, K, B)."""
        joined = [torch.cat([w, b[..., None]], dim=2) for w, b in zip(tangents[::2], tangents[1::2], strict=True)]
        k, outputs, _ = joined[-1].shape
        last = self.inputs[-1] @ joined[-1].reshape(k * outputs, -1).T
        pushed = last.view(-1, k, outputs).permute(2, 1, 0).contiguous()
        for x, tangent, signal in zip(self.inputs, joined, self.signals, strict=False):
            change = x.new_empty((k, len(x), tangent.shape[1]))
            for i in range(k):
                torch.mm(x, tangent[i].T, out=change[i])
            for j, s in enumerate(signal):
                pushed[j] += (change * s).sum(dim=2)
        return pushed

    def pullback(self, cotangent: Tensor) -> Tensor:
        """Jᵀ u: (outputs, K, B) -> (K, P), gradients in the order of the parameters."""
        outputs, k, b = cotangent.shape
        joined = []
        for x, signal in zip(self.inputs, self.signals, strict=False):
            error = cotangent[0, :, :, None] * signal[0]
            for j in range(1, outputs):
                error.addcmul_(cotangent[j, :, :, None], signal[j])
            joined.append(torch.stack([e.T @ x for e in error]))
        joined.append((cotangent.reshape(outputs * k, b) @ self.inputs[-1]).view(outputs, k, -1).transpose(0, 1))
        gradients = [gradient for both in joined for gradient in (both[..., :-1], both[..., -1])]
        return torch.cat([gradient.reshape(k, -1) for gradient in gradients], dim=1)


AnyLinearised: TypeAlias = Linearised | AutogradLinearised


def linearise(network: MLP, obs: Tensor) -> AnyLinearised:
    """The network on the observations; by autograd where it convolves them."""
    return (Linearised if network.design.image is None else AutogradLinearised)(network, obs)


class LinearisedTogether:
    """L networks of one shape on as many observations each, as linear maps through which vectors pass together.

    What the members have from now on are views of what is kept here.
    """

    def __init__(self, members: Sequence[Linearised]) -> None:
        self.output = torch.stack([member.output for member in members])
        """(L, B, outputs)"""
        self.inputs = [torch.stack(x) for x in zip(*(member.inputs for member in members), strict=True)]
        layers = zip(*(member.signals for member in members), strict=True)
        self.signals = [[torch.stack(s) for s in zip(*layer, strict=True)] for layer in layers]
        for number, member in enumerate(members):
            member.inputs = [x[number] for x in self.inputs]
            member.signals = [[s[number] for s in signal] for signal in self.signals]
        samples = self.output.shape[1]
        self._pieces = math.gcd(samples, PIECES) if self.output.is_cuda else 1

    def pushforward(self, tangents: Sequence[Tensor]) -> Tensor:
        """J v of each: tangents shaped as the parameters with (L, K) in front -> (outputs, K, L, B)."""
        joined = [torch.cat([w, b[..., None]], dim=3) for w, b in zip(tangents[::2], tangents[1::2], strict=True)]
        k = joined[0].shape[1]
        last, *changes = (
            torch.unflatten(torch.bmm(x, tangent.flatten(1, 2).mT), 2, (k, -1))
            for x, tangent in zip(self.inputs[-1:] + self.inputs[:-1], joined[-1:] + joined[:-1], strict=True)
        )
        pushed = last.permute(3, 2, 0, 1).contiguous()
        for change, signal in zip(changes, self.signals, strict=True):
            for j, s in enumerate(signal):
                pushed[j] += (change * s[:, :, None]).sum(dim=3).permute(2, 0, 1)
        return pushed

    def pullback(self, cotangent: Tensor) -> Tensor:
        """Jᵀ u of each: (outputs, K, L, B) -> (L, K, P)."""
        k = cotangent.shape[1]
        weights = cotangent.permute(0, 2, 3, 1)[..., None]
        joined = []
        for x, signal in zip(self.inputs, self.signals, strict=False):
            error = weights[0] * signal[0][:, :, None]
            for j in range(1, len(signal)):
                error.addcmul_(weights[j], signal[j][:, :, None])
            joined.append(self._over_samples(error.flatten(2), x))
        joined.append(self._over_samples(cotangent.permute(2, 3, 1, 0).flatten(2), self.inputs[-1]))
        parts = [torch.unflatten(both, 1, (k, -1)) for both in joined]
        return torch.cat([part.flatten(2) for both in parts for part in (both[..., :-1], both[..., -1])], dim=2)

    def _over_samples(self, error: Tensor, x: Tensor) -> Tensor:
        """Σ_samples e xᵀ of each: (L, B, out) and (L, B, in) -> (L, out, in)."""
        if self._pieces == 1:
            return torch.bmm(error.mT, x)
        apart = [torch.unflatten(values, 1, (self._pieces, -1)).flatten(0, 1) for values in (error, x)]
        return torch.unflatten(torch.bmm(apart[0].mT, apart[1]), 0, (len(x), self._pieces)).sum(dim=1)


class LinearisedChunks:
    """The network on all observations (B, obs_dim), `CHUNK` of them at a time: iterates over rows and `Linearised`.

    The first chunks are kept, as many as `BUDGET` has room for. The others are linearised anew in every iteration, so
    that memory has a bound however large B is. Of all chunks the outputs are kept.
    """

    def __init__(self, network: MLP, obs: Tensor) -> None:
        self._network, self._obs = network, obs
        chunk = CHUNK if network.design.image is None else ROWS
        self.rows = [slice(start, min(start + chunk, len(obs))) for start in range(0, len(obs), chunk)]
        """Of each chunk."""
        self._kept: list[AnyLinearised] = []
        outputs, room = [], BUDGET
        for rows in self.rows:
            if room < 0:
                outputs.append(network(obs[rows]))
                continue
            linearised = linearise(network, obs[rows])
            outputs.append(linearised.output)
            room -= linearised.size
            if room >= 0:
                self._kept.append(linearised)
        self.output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        """(B, outputs)"""

    @property
    def all_kept(self) -> bool:
        """Whether there is room for all of them."""
        return len(self._kept) == len(self.rows)

    def __iter__(self) -> Iterator[tuple[slice, AnyLinearised]]:
        for number, rows in enumerate(self.rows):
            kept = number < len(self._kept)
            yield rows, self._kept[number] if kept else linearise(self._network, self._obs[rows])
