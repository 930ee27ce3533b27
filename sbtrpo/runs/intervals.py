"""Intervals: for probabilities that were estimated from counts, and for means."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, ndtri  # not scipy.stats, whose import takes a second


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's two-sided score interval for a probability, seen `successes` times in `n`.

    >>> low, high = wilson_interval(95, 100)
    >>> round(low, 3), round(high, 3)
    (0.888, 0.978)
    """
    _check_counts("successes", successes, n, confidence)
    z = float(ndtri((1 + confidence) / 2))
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * float(np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)))
    # At the ends the bound is exactly 0 or 1, which rounding would miss.
    return (0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half)


def clopper_pearson_upper(failures: int, n: int, confidence: float = 0.95) -> float:
    """The exact one-sided upper bound on a probability of failure, seen `failures` times in `n`.

    With `confidence` the probability is below it. This is the one-sided bound; the upper end of the two-sided
    interval of the same confidence is larger (0.0362 instead of 0.0295 for none in a hundred).

    >>> round(clopper_pearson_upper(0, 100), 4)
    0.0295
    """
    _check_counts("failures", failures, n, confidence)
    return 1.0 if failures == n else float(betaincinv(failures + 1, n - failures, confidence))


def mean_interval(mean: float, std: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a mean of `n` values with this standard deviation, where `n` is large enough for a normal one.

    >>> low, high = mean_interval(10.0, 5.0, 100)
    >>> round(low, 2), round(high, 2)
    (9.02, 10.98)
    """
    half = float(ndtri((1 + confidence) / 2)) * std / float(np.sqrt(n))
    return mean - half, mean + half


def _check_counts(name: str, count: int, n: int, confidence: float) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}; an interval needs an episode")
    if not 0 <= count <= n:
        raise ValueError(f"{name} must be between 0 and n = {n}, got {count}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}; use 0.95 for 95 %")
