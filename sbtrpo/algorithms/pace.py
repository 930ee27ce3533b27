"""How long steps should be, from what successive updates agree on.

A step Δ has a part that other episodes would ask for, too, and a part that is the noise of its own. Successive steps
have the former in common and the latter not. So with Fisher's metric F, the mean p of F Δ over the last few steps, and
averaged over many updates,

    a = ⟨Δ, p⟩ / ⟨Δ, F Δ⟩

is the share of a step's squared length that holds: 1 where batches leave no doubt, about 0 where all is noise, and less
where steps are so long that each takes back those before. √a is the length of that part, and steps are shortened to a
multiple of it. So they are long at first, and where samples are plenty, and grow shorter as there is less to be learnt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

RECENT = 0.8
"""Weight of earlier steps in their mean, at most: a policy moves on, and with it what is to be asked for."""
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
        self._path = torch.zeros_like(like)
        """Sum of F Δ of the steps before, the older ones counting less, and in `_weight` the sum of what they count."""
        self._weight = self._common = self._own = 0.0

    def agreement(self, step: Tensor, product: Tensor) -> float:
        """a, when another step Δ of full length has come, given with F Δ; 1 at the first one."""
        keep, own = self._memory, float(step @ product)
        if own > 0:  # otherwise the batch had no signal, and says nothing
            common = float(step @ self._path) if self._weight else own  # the first one agrees with itself
            self._common = keep * self._common + common
            self._own = keep * self._own + (self._weight or 1.0) * own
            recent = min(keep, RECENT)
            self._path, self._weight = recent * self._path + product, recent * self._weight + 1.0
        return self._common / self._own if self._own > 0 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """All that the next step's agreement depends on."""
        numbers = {"weight": self._weight, "common": self._common, "own": self._own}
        return {"path": self._path.cpu().numpy().copy(), **numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._path.copy_(torch.as_tensor(state["path"]))
        self._weight, self._common, self._own = (float(state[name]) for name in ("weight", "common", "own"))


def length(agreement: float, times: float) -> float:
    """Of a step, as a share of the full one.

    >>> length(0.01, 2.0), length(0.5, 2.0), length(-0.1, 2.0)
    (0.2, 1.0, 0.01)
    """
    return min(1.0, max(SHORTEST, times * math.sqrt(max(0.0, agreement))))
