"""The methods: one file each, on one trust-region core and one first-order core.

`Method`, `TrustRegionMethod` and `FirstOrderMethod` are what a method of one's own derives from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sbtrpo.algorithms.base import Method
from sbtrpo.algorithms.first_order import FirstOrderMethod, FirstOrderSettings
from sbtrpo.algorithms.trust_region import TrustRegionMethod, TrustRegionSettings
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.errors import UserError
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import Policy

__all__ = [
    "FirstOrderMethod",
    "FirstOrderSettings",
    "Method",
    "TrustRegionMethod",
    "TrustRegionSettings",
    "make_method",
]


def make_method(
    policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
    names: Sequence[str] = ("c",),
) -> Method[Any]:  # fmt: skip
    """The method that a config names, for constraints of these names; see `Method`."""
    implementation: type[Method[Any]] = catalogue.method(config.algo).implementation
    taken = implementation.constraints_taken
    if taken is not None and len(names) > taken:
        number = "one constraint" if taken == 1 else f"{taken} constraints"
        several = [entry.name for entry in catalogue.entries() if entry.implementation.constraints_taken is None]
        raise UserError(
            f"{config.algo} takes {number}; use `--constraints sum`, which adds them up, or a method that takes"
            f" several ({', '.join(several)})"
        )
    return implementation(policy, critics, config, orders, names)
