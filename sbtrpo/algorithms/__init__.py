"""The methods: one file each, on one trust-region core and one first-order core.

What a method of one's own needs is here: `TrustRegionMethod` or `FirstOrderMethod` to derive from, and what their
functions take and return. See docs/own_method.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, Method, Trial
from sbtrpo.algorithms.first_order import FirstOrderMethod, FirstOrderSettings, Fixed
from sbtrpo.algorithms.minibatches import Minibatch, Samples, Slopes
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    natural_gradient_step,
    solve,
)
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.settings import for_each
from sbtrpo.errors import UserError
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import Policy

__all__ = [
    "Batch",
    "Costs",
    "Diagnostics",
    "FirstOrderMethod",
    "FirstOrderSettings",
    "Fixed",
    "Method",
    "Minibatch",
    "Proposal",
    "Samples",
    "Slopes",
    "Trial",
    "TrustRegion",
    "TrustRegionMethod",
    "TrustRegionSettings",
    "check_constraints",
    "make_method",
    "natural_gradient_step",
    "solve",
]


def make_method(
    policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
    names: Sequence[str] = ("c",),
) -> Method[Any]:  # fmt: skip
    """The method that a config names, for constraints of these names; see `Method`."""
    check_constraints(config, len(names))
    implementation: type[Method[Any]] = catalogue.method(config.algo).implementation
    return implementation(policy, critics, config, orders, names)


def check_constraints(config: TrainConfig, constraints: int) -> None:
    """Refuse more constraints than a method takes, and settings for each that are not one for each."""
    for setting in ("beta", "beta_end", "cost_limit"):
        if (value := config.get(setting)) is not None:
            for_each(setting, value, constraints)
    taken: int | None = catalogue.method(config.algo).implementation.constraints_taken
    if taken is not None and constraints > taken:
        number = "one constraint" if taken == 1 else f"{taken} constraints"
        several = [entry.name for entry in catalogue.entries() if entry.implementation.constraints_taken is None]
        raise UserError(
            f"{config.label} takes {number}; use `--constraints sum`, the task's total cost, or a method that takes"
            f" several ({', '.join(several)})"
        )
