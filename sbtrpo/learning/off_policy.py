"""Advantages by critics of state and action that learn from the episodes of earlier policies, too.

What an epoch's episodes say of costs is mostly noise, and what those before said of nearly the same policy is thrown
away where advantages are Monte Carlo returns. Here a part of each epoch is kept, and networks learn from all of that
what an action will have brought (`sbtrpo/nets/action_critics.py`); the epoch's own actions are judged by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo.learning.advantages import paths, returns_to_go
from sbtrpo.learning.rollout import Rollout
from sbtrpo.nets.action_critics import ActionCritics, Samples, encoded
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.normaliser import units
from sbtrpo.nets.policy import Policy

FEW_STEPS = 10
"""Of a return before a critic has its say."""
EPOCHS_KEPT = 8
"""Earlier epochs that critics learn from; each gives up to that share of `replay_steps`."""


@dataclass(frozen=True)
class Spans:
    """Between what bounds values lie, in what unit: so that what networks tell is of the size of 1."""

    unit: Tensor
    """(S,) by which a signal is multiplied."""
    least: Tensor
    """(S,)"""
    most: Tensor
    """(S,)"""
    worse: Tensor
    """(S,) 1 where more is worse, otherwise -1."""

    @classmethod
    def of(cls, signals: slice, units: Tensor, first_hit: bool) -> Spans:
        """Of these signals, with units for their sums; reward is the one of number 0."""
        reward, cost = (0, -math.inf, math.inf, -1), (1, 0, 1, 1) if first_hit else (0, 0, math.inf, 1)
        spans = [cost if k else reward for k in range(signals.start, signals.stop)]
        unit, least, most, worse = torch.tensor(spans, dtype=units.dtype, device=units.device).T
        return cls(torch.where(unit == 0, units, unit), least, most, worse)


@dataclass
class Piece:
    """A part of an epoch: T steps of some of its worlds."""

    obs: Tensor
    """(T, n, obs_dim), normalised as the policy sees them now."""
    time: Tensor
    """(T, n)"""
    action: Tensor
    """(T, n, action_size)"""
    signals: Tensor
    """(1 + C, T, n)"""
    terminated: Tensor
    """(T, n) bool"""
    truncated: Tensor
    """(T, n) bool"""

    @classmethod
    def of(cls, rollout: Rollout, worlds: int | None = None) -> Piece:
        """The first so many worlds of a rollout, in memory of their own; all of them, as they are, if left out."""
        if worlds is None:
            return cls(**{name: getattr(rollout, name) for name in cls.__annotations__})
        kept = {name: getattr(rollout, name)[..., :worlds] for name in ("time", "signals", "terminated", "truncated")}
        kept |= {name: getattr(rollout, name)[:, :worlds] for name in ("obs", "action")}
        return cls(**{name: tensor.clone() for name, tensor in kept.items()})

    def samples(self, policy: Policy, gamma: float, signals: slice, first_hit: bool, spans: Spans) -> Samples:
        """All steps of which it is known what the next few brought.

        Of the last ones, after which the rollout is cut, that is so where a time-out comes before the cut. Whether the
        path has ended otherwise must not count: of those cut short, only the ones with a violation would be left.
        """
        x, _, ended = (part[signals] for part in paths(self.signals, self.terminated, self.truncated, first_hit))
        x, (steps, worlds) = x * spans.unit[:, None, None], self.time.shape
        gains, weight = torch.zeros_like(x), torch.ones_like(x)
        for k in range(min(FEW_STEPS, steps)):
            until = steps - k
            gains[:, :until] += gamma**k * weight[:, :until] * x[:, k:]
            weight[:, :until] *= ~ended[:, k:]
        rows = torch.arange(steps * worlds, device=self.obs.device).view(steps, worlds)
        timed_out = (self.truncated & ~self.terminated).flip(0).cumsum(dim=0).flip(0) > 0
        known = (rows < (steps - FEW_STEPS) * worlds) | timed_out
        now = rows[known]
        return Samples(
            inputs=seen(self.obs, self.time).flatten(0, 1),
            now=now,
            after=(now + FEW_STEPS * worlds).clamp(max=steps * worlds - 1),
            action=encoded(policy, self.action[known]),
            gains=gains[:, known],
            weight=gamma**FEW_STEPS * weight[:, known],
        )


def seen(obs: Tensor, time: Tensor) -> Tensor:
    """What critics see: observations and the time that has passed, (..., obs_dim + 1)."""
    return torch.cat([obs, time[..., None].to(obs.dtype)], -1)


def together(pieces: list[Samples]) -> Samples:
    """The samples of several pieces."""
    starts = [0]
    for piece in pieces[:-1]:
        starts.append(starts[-1] + len(piece.inputs))
    return Samples(
        inputs=torch.cat([piece.inputs for piece in pieces]),
        now=torch.cat([piece.now + start for piece, start in zip(pieces, starts, strict=True)]),
        after=torch.cat([piece.after + start for piece, start in zip(pieces, starts, strict=True)]),
        action=torch.cat([piece.action for piece in pieces]),
        gains=torch.cat([piece.gains for piece in pieces], dim=1),
        weight=torch.cat([piece.weight for piece in pieces], dim=1),
    )


class OffPolicy:
    """Critics of state and action, and the parts of earlier epochs that they learn from.

    Args:
        signals: which of a rollout's they judge: reward is the first, costs follow.
        policy: whose actions they judge.
        gamma: discount.
        keep: the most steps of earlier epochs.
        updates: minibatches in an epoch.
        pessimism: of the critics (see `ActionCritics.advantages`).
        generator: of the critics' first weights, on the CPU.
        steady: whether statistics of observations change only where `rescale` tells of it.
    """

    def __init__(
        self, signals: slice, policy: Policy, gamma: float, keep: int, updates: int, pessimism: float,
        generator: torch.Generator, steady: bool,
    ) -> None:  # fmt: skip
        self.signals = signals
        self.critics = ActionCritics(signals.stop - signals.start, policy, generator)
        self._policy, self._gamma, self._keep = policy, gamma, keep
        self._updates, self._pessimism = updates, pessimism
        self._pieces: list[Piece] = []
        self._steady = steady
        self._seen_in = units(policy.normaliser.state_dict())
        """Mean and deviation in which the pieces are, where statistics are not steady."""
        self._units = torch.zeros(self.critics.signals, device=policy.device)
        """One over the deviation of the first discounted sums that differed; 0 where none have yet."""

    def advantages(self, rollout: Rollout, first_hit: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Learn from an epoch and those before it, and judge the epoch's actions.

        Args:
            rollout: the epoch.
            first_hit: whether a cost's path ends with its next violation (see `paths`).
            generator: of minibatches and of actions, on the CPU.

        Returns:
            (S, T, N) advantages, 0 of a signal that has been 0 in all samples; (S,) the critics' mean squared errors.
        """
        policy, obs = self._policy, rollout.obs
        if not all(bool(tensor.isfinite().all()) for tensor in (obs, rollout.action, rollout.signals)):
            nothing = torch.full_like(rollout.signals[self.signals], math.nan)  # the update is skipped, and told
            return nothing, nothing.flatten(1).sum(dim=1)
        if not self._steady:
            self._follow()
        self._measure(rollout)
        spans = Spans.of(self.signals, torch.where(self._units > 0, self._units, 1.0), first_hit)
        pieces = [*self._pieces, Piece.of(rollout)]
        samples = together([piece.samples(policy, self._gamma, self.signals, first_hit, spans) for piece in pieces])
        self._remember(rollout)
        seed = int(torch.randint(2**62, (), generator=generator))
        drawing = torch.Generator(obs.device).manual_seed(seed)
        errors = self.critics.fit(samples, policy, self._updates, spans.least, spans.most, drawing)
        inputs, action = seen(obs, rollout.time).flatten(0, 1), encoded(policy, rollout.action.flatten(0, 1))
        found = self.critics.advantages(inputs, action, policy, drawing, self._pessimism * spans.worse[:, None])
        told = (samples.gains != 0).any(dim=1) / spans.unit
        return (found * told[:, None]).view(-1, *obs.shape[:2]), errors * told**2

    def _measure(self, rollout: Rollout) -> None:
        ended = rollout.terminated | rollout.truncated
        spread = returns_to_go(rollout.signals[self.signals], ended, self._gamma).flatten(1).std(dim=1)
        self._units = torch.where((self._units == 0) & (spread > 0), 1 / spread, self._units)

    def _remember(self, rollout: Rollout) -> None:
        steps, worlds = rollout.obs.shape[:2]
        kept = min(worlds, self._keep // EPOCHS_KEPT // steps)
        if kept:
            self._pieces = [*self._pieces[1 - EPOCHS_KEPT :], Piece.of(rollout, kept)]
        else:
            self._pieces = self._pieces[1:]

    def rescale(self, ratio: Array, shift: Array) -> None:
        """Go on where a normalised observation x is from now on (x - shift) / ratio: (obs_dim,)."""
        self.critics.rescale(ratio, shift)
        self._rescale_pieces(ratio, shift)

    def _follow(self) -> None:
        """Show what is kept in the units in which the policy sees today."""
        (mean, scale), (new_mean, new_scale) = self._seen_in, units(self._policy.normaliser.state_dict())
        self._seen_in = new_mean, new_scale
        if not (np.array_equal(mean, new_mean) and np.array_equal(scale, new_scale)):
            self._rescale_pieces(new_scale / scale, (new_mean - mean) / scale)

    def _rescale_pieces(self, ratio: Array, shift: Array) -> None:
        for piece in self._pieces:
            double = [torch.as_tensor(x, device=piece.obs.device) for x in (shift, ratio)]
            piece.obs = ((piece.obs.double() - double[0]) / double[1]).to(piece.obs.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Critics and what is kept of earlier epochs."""
        pieces = [{name: tensor.cpu().numpy() for name, tensor in vars(piece).items()} for piece in self._pieces]
        mean, scale = self._seen_in
        kept = {"pieces": pieces, "mean": mean, "scale": scale}
        return {"critics": self.critics.state_dict(), "units": self._units.cpu().numpy(), **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.critics.load_state_dict(state["critics"])
        self._seen_in = np.asarray(state["mean"]), np.asarray(state["scale"])
        device = self._policy.device
        self._units = torch.as_tensor(state["units"]).to(device)
        self._pieces = [
            Piece(**{name: torch.as_tensor(values).to(device) for name, values in piece.items()})
            for piece in state["pieces"]
        ]
