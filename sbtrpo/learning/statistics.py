"""Statistics of observations that leave the policy where its method put it.

Networks see observations in units of a running mean and deviation. As published, these move with every step, and the
policy with them: what it does in a state changes between updates, outside of any trust region, and the more so the
fewer updates a run has. Steady statistics stand still during an epoch. At its end they grow by what was seen, and
first layers change so that policy and critics stay the functions of raw observations that they were:

    W x + b = W' x' + b'   where   W' = W diag(σ'/σ)   and   b' = b + W (μ' - μ)/σ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch

from sbtrpo.learning.rollout import Collector, Rollout
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import chunks
from sbtrpo.nets.normaliser import units


class Rescaled(Protocol):
    """What sees observations in their units."""

    def rescale(self, ratio: Array, shift: Array) -> None:
        """Go on where a normalised observation x is from now on (x - shift) / ratio: (obs_dim,)."""


@torch.no_grad()
def settle(collector: Collector, critics: Iterable[Rescaled | None], rollout: Rollout) -> None:
    """Take in what an epoch has shown; all networks stay the functions that they are.

    In the first epoch statistics grow with every step, as there are none to begin with; at its end they come to rest.

    Args:
        collector: whose policy acted in the epoch.
        critics: which see what the policy sees.
        rollout: of the epoch.
    """
    policy, form, normaliser = collector.policy, collector.form, collector.policy.normaliser
    if normaliser.learns:
        normaliser.learns = False
        return
    (mean, scale), seen = units(normaliser.state_dict()), rollout.obs.flatten(0, 1)
    for piece in chunks(len(seen)):
        normaliser.merge(form.double(seen[piece]) * form.double(scale) + form.double(mean))
    new_mean, new_scale = units(normaliser.state_dict())
    ratio, shift = new_scale / scale, (new_mean - mean) / scale
    policy.rescale(ratio, shift)
    collector.rescale(ratio, shift)
    for critic in critics:
        if critic is not None:
            critic.rescale(ratio, shift)
