"""How long steps should be, from what successive updates agree on.

A step Δ has a part that other episodes would ask for, too, and a part that is the noise of its own. Successive steps
have the former in common and the latter not. So with Fisher's metric F, and averaged over many updates,

    a = ⟨Δ_t, F Δ_t-1⟩ / ⟨Δ_t, F Δ_t⟩

is the share of a step's squared length that holds: 1 where batches leave no doubt, about 0 where all is noise, and less
where steps are so long that each takes back the one before. √a is the length of that part, and steps are shortened to a
multiple of it. So they are long at first, and where samples are plenty, and grow shorter as there is less to be learnt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SHORTEST = 0.01
"""Of a step, as a share of the full one: agreement that is missing is a matter of chance, too."""


class Pace:
    """Follows the agreement of successive steps.

    Args:
        like: a step.
        memory: weight of what was known in what is known after another update, in [0, 1).
    """

    def __init__(self, like: Tensor, memory: float) -> None:
        self._memory = memory
        self._last = torch.zeros_like(like)
        self._common = self._own = 0.0

    def agreement(self, step: Tensor, product: Tensor) -> float:
        """a, when another step Δ of full length has come, given with F Δ; 1 as long as there is nothing to compare."""
        if bool(self._last.any()):
            self._common = self._memory * self._common + float(step @ self._last)
            self._own = self._memory * self._own + float(step @ product)
        self._last = product.clone()
        return self._common / self._own if self._own > 0 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """All that the next step's agreement depends on."""
        return {"last": self._last.cpu().numpy().copy(), "common": self._common, "own": self._own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._last.copy_(torch.as_tensor(state["last"]))
        self._common, self._own = float(state["common"]), float(state["own"])


def length(agreement: float, times: float) -> float:
    """Of a step, as a share of the full one.

    >>> length(0.01, 2.0), length(0.5, 2.0), length(-0.1, 2.0)
    (0.2, 1.0, 0.01)
    """
    return min(1.0, max(SHORTEST, times * math.sqrt(max(0.0, agreement))))
