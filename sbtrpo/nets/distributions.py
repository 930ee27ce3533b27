"""What a policy's network outputs mean: a Gaussian's means, or the logits of a choice.

Each function is written once for torch and NumPy: `xp` is the module, `outputs` (..., outputs) the network's, and
`log_std` the parameters beside it, (actions,) for a Gaussian and (0,) for a choice.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A `torch.Tensor` or a `numpy.ndarray`, as the module passed along."""

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Gaussian:
    """Actions (..., m) from a diagonal Gaussian with a standard deviation that does not depend on the state."""

    discrete = False

    def __init__(self, actions: int) -> None:
        self.outputs = self.spreads = self.dimensions = self.action_size = actions

    def log_prob(self, xp: Any, outputs: Array, log_std: Array, action: Array) -> Array:
        """Log-density, summed over dimensions: (...)."""
        z = (action - outputs) * xp.exp(-log_std)
        return (-0.5 * z * z - log_std - _LOG_SQRT_2PI).sum(-1)

    def kl(self, xp: Any, p: tuple[Array, Array], q: tuple[Array, Array]) -> Array:
        """KL(p ‖ q), each given as outputs and log_std, summed over dimensions: (...)."""
        (mean, log_std), (other, other_log_std) = p, q
        gap = (mean - other) * xp.exp(-other_log_std)
        return (other_log_std - log_std + 0.5 * (xp.exp(2 * (log_std - other_log_std)) + gap * gap - 1)).sum(-1)

    def score(self, xp: Any, outputs: Array, log_std: Array, action: Array) -> tuple[Array, Array]:
        """Slopes of the log-density in outputs and in log_std: (..., m) each."""
        z = (action - outputs) * xp.exp(-log_std)
        return z * xp.exp(-log_std), z * z - 1

    def kl_slope(self, xp: Any, p: tuple[Array, Array], q: tuple[Array, Array]) -> tuple[Array, Array]:
        """Slopes of KL(p ‖ q) in p's outputs and log_std."""
        (mean, log_std), (other, other_log_std) = p, q
        in_mean = (mean - other) * xp.exp(-2 * other_log_std)
        return in_mean, xp.exp(2 * (log_std - other_log_std)) - 1 + xp.zeros_like(in_mean)

    def metric(self, xp: Any, outputs: Array, log_std: Array, tangent: Array) -> Array:
        """The Fisher information of the outputs, applied: (outputs, K, B) -> (outputs, K, B).

        Of several policies' outputs (L, B, m) and log_std (L, m): (outputs, K, L, B) -> (outputs, K, L, B).
        """
        return tangent * xp.moveaxis(xp.exp(-2 * log_std), -1, 0)[:, None, ..., None]

    def noise(self, torch: Any, shape: tuple[int, ...], generator: Any) -> Array:
        """What `sample` needs, (*shape, outputs), from torch's generator and where that is."""
        return torch.randn((*shape, self.outputs), generator=generator, device=_place(generator))

    def sample(self, xp: Any, outputs: Array, log_std: Array, noise: Array) -> Array:
        """Actions (..., action_size)."""
        return outputs + xp.exp(log_std) * noise

    def mode(self, outputs: Array) -> Array:
        """The most probable actions."""
        return outputs


class Categorical:
    """One of n actions, as its number (..., 1); outputs are the logits."""

    discrete = True

    def __init__(self, actions: int) -> None:
        self.outputs = actions
        self.spreads, self.dimensions, self.action_size = 0, 1, 1

    def log_prob(self, xp: Any, outputs: Array, log_std: Array, action: Array) -> Array:
        """Log-probability: (...)."""
        return (self._taken(xp, action) * self._log_p(xp, outputs)).sum(-1)

    def kl(self, xp: Any, p: tuple[Array, Array], q: tuple[Array, Array]) -> Array:
        """KL(p ‖ q): (...)."""
        log_p, log_q = self._log_p(xp, p[0]), self._log_p(xp, q[0])
        return (xp.exp(log_p) * (log_p - log_q)).sum(-1)

    def score(self, xp: Any, outputs: Array, log_std: Array, action: Array) -> tuple[Array, Array]:
        """Slopes of the log-probability in the logits, and none beside them."""
        slope = self._taken(xp, action) - xp.exp(self._log_p(xp, outputs))
        return slope, slope[..., :0]

    def kl_slope(self, xp: Any, p: tuple[Array, Array], q: tuple[Array, Array]) -> tuple[Array, Array]:
        """Slopes of KL(p ‖ q) in p's logits, and none beside them."""
        log_p, log_q = self._log_p(xp, p[0]), self._log_p(xp, q[0])
        gap = log_p - log_q
        slope = xp.exp(log_p) * (gap - (xp.exp(log_p) * gap).sum(-1)[..., None])
        return slope, slope[..., :0]

    def metric(self, xp: Any, outputs: Array, log_std: Array, tangent: Array) -> Array:
        """The Fisher information diag(p) - ppᵀ of the logits, applied, as a Gaussian's is."""
        p = xp.moveaxis(xp.exp(self._log_p(xp, outputs)), -1, 0)[:, None]
        return p * (tangent - (p * tangent).sum(0))

    def noise(self, torch: Any, shape: tuple[int, ...], generator: Any) -> Array:
        """Gumbel's noise, whose greatest sum with the logits is a sample."""
        uniform = torch.rand((*shape, self.outputs), generator=generator, device=_place(generator))
        return -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))

    def sample(self, xp: Any, outputs: Array, log_std: Array, noise: Array) -> Array:
        """Numbers of the actions, (..., 1), as floats."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Array) -> Array:
        """The most probable actions."""
        return 1.0 * outputs.argmax(-1)[..., None]

    def _log_p(self, xp: Any, outputs: Array) -> Array:
        top = xp.amax(outputs, -1)[..., None]
        return outputs - top - xp.log(xp.exp(outputs - top).sum(-1))[..., None]

    def _taken(self, xp: Any, action: Array) -> Array:
        """1.0 at the action taken, 0.0 elsewhere: (..., outputs)."""
        return 1.0 * (action == xp.arange(self.outputs, device=action.device))


def _place(generator: Any) -> Any:
    """Where a generator draws; torch's default one where it is None."""
    return None if generator is None else generator.device


Distribution: TypeAlias = Gaussian | Categorical
