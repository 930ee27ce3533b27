"""Critics of state and action, Q(s, a): what is to come, of reward or of a cost, if this is done here.

Unlike critics of states they may learn from whatever policy acted. Each of an ensemble has weights and minibatches of
its own, and the ensemble's mean counts, or more than that. Targets are returns of a few steps, as the policies of then
went on, and, where these pass without an end, what a slowly following copy says of the state after them and of what
today's policy might do there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sbtrpo.nets.critics import regress
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import chunks
from sbtrpo.nets.policy import Policy
from sbtrpo.nets.stack_torch import TensorAdam, TensorStack

ENSEMBLE = 5
"""Networks of each signal."""
WIDTHS = 128, 128
"""Of their hidden layers."""
ROWS = 4_096
"""Samples in a minibatch of each network."""
LEARNING_RATE = 1e-3
"""Of Adam at first; it falls to 0 along half a wave of the cosine, each time the networks learn."""
FOLLOWING = 0.01
"""What the slow copy takes over of the networks in a minibatch."""
ACTIONS = 8
"""Over so many of the policy's actions the mean of Q is taken."""


@dataclass(frozen=True)
class Samples:
    """What the networks learn from; n samples of S signals."""

    inputs: Tensor
    """(m, obs_dim + 1) what was observed, and the time that had passed, in all steps."""
    now: Tensor
    """(n,) the row of a sample in them."""
    after: Tensor
    """(n,) the row of what was observed a few steps later."""
    action: Tensor
    """(n, outputs) as `encoded`."""
    gains: Tensor
    """(S, n) discounted sums over the steps between."""
    weight: Tensor
    """(S, n) by which the value of what was observed after them counts: 0 where nothing follows."""


class ActionCritics:
    """The networks of S signals, which are reward or costs.

    Args:
        signals: S.
        policy: whose observations and actions they see.
        generator: of the initial weights, on the CPU.
    """

    def __init__(self, signals: int, policy: Policy, generator: torch.Generator) -> None:
        self.signals, self._networks = signals, signals * ENSEMBLE
        sizes = [policy.observation_size + 1 + policy.head.outputs, *WIDTHS, 1]
        self.stack, self._slow = (TensorStack(self._networks, sizes, device=policy.device) for _ in range(2))
        self.adam = TensorAdam(len(self.stack.theta), device=policy.device)
        for param, (inputs, _) in zip(
            self.stack.params, (layer for layer in self.stack.layers for _ in "wb"), strict=True
        ):
            uniform = torch.rand(tuple(param.shape), generator=generator) * 2 - 1
            param.copy_(uniform / math.sqrt(inputs))
        self._slow.theta.copy_(self.stack.theta)

    @torch.no_grad()
    def fit(
        self, samples: Samples, policy: Policy, updates: int, least: Tensor, most: Tensor, generator: torch.Generator
    ) -> Tensor:
        """So many minibatches of each network.

        Args:
            samples: from whatever policies.
            policy: today's, which acts from a few steps later on.
            updates: minibatches.
            least: (S,) that is to come.
            most: (S,)
            generator: of minibatches and actions, where the networks are.

        Returns:
            (S,) mean squared errors in the last minibatch.
        """
        several = samples.gains, samples.weight, least[:, None], most[:, None]
        gains, weight, least, most = (x.repeat_interleave(ENSEMBLE, dim=0) for x in several)
        error = torch.zeros(self._networks, 1, device=gains.device)
        for k in range(updates):
            rows = torch.randint(gains.shape[1], (self._networks, ROWS), device=gains.device, generator=generator)
            after = samples.inputs[samples.after[rows]]
            follows = _values(self._slow, after, self._acted(policy, after, generator)).clamp(least, most)
            target = gains.gather(1, rows).addcmul_(weight.gather(1, rows), follows)
            error = regress(
                self.stack, torch.cat([samples.inputs[samples.now[rows]], samples.action[rows]], -1), target
            )
            self.adam.step(
                self.stack.theta, self.stack.gradient, LEARNING_RATE * (1 + math.cos(math.pi * k / updates)) / 2
            )
            self._slow.theta.lerp_(self.stack.theta, FOLLOWING)
        return error.square().view(self.signals, -1).mean(dim=1)

    @torch.no_grad()
    def advantages(
        self,
        inputs: Tensor,
        action: Tensor,
        policy: Policy,
        generator: torch.Generator,
        pessimism: Tensor | float = 0.0,
    ) -> Tensor:
        """Q of what was done less its mean over actions of the policy: (S, n).

        Args:
            inputs: (n, obs_dim + 1).
            action: (n, outputs) as `encoded`.
            policy: that acted.
            generator: of other actions, where the networks are.
            pessimism: so many deviations between a signal's networks are added to their mean; (S, 1), or one for all.
        """

        def q(seen: Tensor, done: Tensor) -> Tensor:
            both = (x.expand(self._networks, -1, -1) for x in (seen, done))
            values = _values(self.stack, *both).view(self.signals, ENSEMBLE, -1)
            return values.mean(dim=1) + pessimism * values.std(dim=1)

        found = []
        for piece in chunks(len(inputs), self._networks):
            seen = inputs[piece]
            usual = torch.stack([q(seen, self._acted(policy, seen, generator)) for _ in range(ACTIONS)]).mean(dim=0)
            found.append(q(seen, action[piece]) - usual)
        return torch.cat(found, dim=1)

    def _acted(self, policy: Policy, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """What the policy might do, one action for each of (..., obs_dim + 1): (..., outputs)."""
        outputs = policy.mean(inputs[..., :-1])
        noise = policy.head.noise(torch, tuple(outputs.shape[:-1]), generator)
        return encoded(policy, policy.head.sample(torch, outputs, policy.log_std, noise))

    def rescale(self, ratio: Array, shift: Array) -> None:
        """Stay the same functions where a normalised observation x is from now on (x - shift) / ratio: (obs_dim,)."""
        for stack in (self.stack, self._slow):
            weight, bias = stack.params[:2]
            ratios, shifts = (torch.as_tensor(x, device=weight.device) for x in (ratio, shift))
            before = weight[:, : len(ratios)].double()
            bias.copy_(bias + shifts[None] @ before)
            weight[:, : len(ratios)] = (before * ratios[:, None]).to(weight.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Weights, their slow copies and Adam's state."""
        theta, slow = (stack.theta.cpu().numpy().copy() for stack in (self.stack, self._slow))
        return {"params": theta, "slow": slow, **self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.stack.theta.copy_(torch.as_tensor(state["params"]))
        self._slow.theta.copy_(torch.as_tensor(state["slow"]))
        self.adam.load_state_dict(state)


def encoded(policy: Policy, action: Tensor) -> Tensor:
    """Actions (..., action_size) as the networks see them, (..., outputs): choices as a 1 among zeros."""
    if policy.head.discrete:
        return torch.nn.functional.one_hot(action[..., 0].long(), policy.head.outputs).to(action.dtype)
    return action


def _values(stack: TensorStack, inputs: Tensor, action: Tensor) -> Tensor:
    """(K, n) from (K, n, ...)."""
    return stack.forward(torch.cat([inputs, action], -1))[-1][..., 0]
