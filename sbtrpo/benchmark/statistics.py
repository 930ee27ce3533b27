"""What several seeds amount to: interquartile means and stratified bootstrap intervals.

As in Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS 2021), and their
package rliable, which a test compares with these functions where it is installed. (It needs an outdated pandas, and
takes a second for what takes milliseconds here, since there the resamples are not handled together.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 2000
_TRIM = 0.25


def interquartile_mean(scores: Floats) -> Floats:
    """The mean along the last axis without the lowest and the highest quarter (rounded down).

    >>> float(interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])))
    2.0
    """
    count = scores.shape[-1]
    cut = int(_TRIM * count)
    mean: Floats = np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return mean


def bootstrap_interval(
    strata: Sequence[Floats], confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """A percentile interval for the interquartile mean of all scores together.

    Args:
        strata: the scores of each task, (runs,); each is resampled by itself, so that every task keeps its weight.
        confidence: of the interval.
        resamples: how many.
        seed: of the resampling; the same scores give the same interval.
    """
    if not strata or any(len(scores) == 0 for scores in strata):
        raise ValueError("an interval needs at least one score in every stratum")
    rng = np.random.default_rng(seed)
    drawn = [scores[rng.integers(len(scores), size=(resamples, len(scores)))] for scores in strata]
    means = interquartile_mean(np.concatenate(drawn, axis=1))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
