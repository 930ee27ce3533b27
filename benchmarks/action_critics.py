"""Critics of state and action as `estimators.py` judges them: learnt from earlier policies' rollouts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sbtrpo.learning.off_policy import Piece, Spans, seen, together
from sbtrpo.learning.rollout import Rollout
from sbtrpo.nets.action_critics import ActionCritics, encoded
from sbtrpo.nets.normaliser import units
from sbtrpo.nets.policy import Policy


class FromThePast:
    """Critics of first hits that have learnt from rollouts of earlier policies."""

    def __init__(self, past: Sequence[Rollout], policy: Policy, gamma: float, updates: int) -> None:
        self.policy, self._critics = policy, ActionCritics(1, policy, torch.Generator().manual_seed(0))
        self._drawing = torch.Generator(policy.device).manual_seed(0)
        cost = slice(1, 2)
        spans = Spans.of(cost, torch.ones(1, device=policy.device), first_hit=True)
        samples = together([Piece.of(rollout).samples(policy, gamma, cost, True, spans) for rollout in past])
        self._critics.fit(samples, policy, updates, spans.least, spans.most, self._drawing)

    def advantage(self, rollout: Rollout, pessimism: float) -> Tensor:
        """(T, N) of a rollout's actions."""
        flat = seen(rollout.obs, rollout.time).flatten(0, 1), encoded(self.policy, rollout.action.flatten(0, 1))
        found = self._critics.advantages(*flat, self.policy, self._drawing, pessimism)
        return found[0].view(rollout.time.shape).double()


def seen_by(policy: Policy, rollout: Rollout, acted: Policy) -> Rollout:
    """A rollout of another policy, its observations as this policy sees them."""
    (mean, scale), (their_mean, their_scale) = (
        [torch.as_tensor(x, device=rollout.obs.device) for x in units(one.normaliser.state_dict())]
        for one in (policy, acted)
    )
    raw = rollout.obs.double() * their_scale + their_mean
    return replace(rollout, obs=((raw - mean) / scale).to(rollout.obs.dtype))
