"""The methods: one file each, on one trust-region core and one first-order core.

`Method`, `TrustRegionMethod` and `FirstOrderMethod` are what a method of one's own derives from.
"""

from __future__ import annotations

from typing import Any

import torch

from sbtrpo.algorithms.base import Method
from sbtrpo.algorithms.first_order import FirstOrderMethod, FirstOrderSettings
from sbtrpo.algorithms.trust_region import TrustRegionMethod, TrustRegionSettings
from sbtrpo.config import TrainConfig, catalogue
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


def make_method(policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator) -> Method[Any]:
    """The method that a config names."""
    method: Method[Any] = catalogue.method(config.algo).implementation(policy, critics, config, orders)
    return method
