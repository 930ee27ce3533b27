"""What a run is judged by: statistics of finished training episodes, and intervals for probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri  # not scipy.stats, whose import takes a second

Floats = NDArray[np.float64]

WINDOW = 50
"""Episodes in a window."""
STATISTICS = ("reward", "cost", "length", "safety_probability", "safe_reward")


class EpisodeWindows:
    """Means over the last 50 training episodes of all worlds, averaged over an epoch.

    As the published code does, each episode that finishes notes the means of the windows that it has just entered,
    and an epoch's statistic is the mean of what its episodes noted. A safe episode is one without any cost; the safe
    reward of an unsafe one is zero.

    >>> windows = EpisodeWindows()
    >>> windows.add([4.0, 2.0], costs=[0, 1], lengths=[10, 10])
    >>> windows.epoch_statistics()["safe_reward"]  # the mean of 4 / 1 and (4 + 0) / 2
    3.0
    """

    def __init__(self) -> None:
        self._window: Floats = np.empty((0, len(STATISTICS)))  # the oldest episode first
        self._noted: Floats = np.empty((0, len(STATISTICS)))  # a row for each episode of this epoch
        self._last: Floats = np.full(len(STATISTICS), np.nan)

    def add(self, returns: ArrayLike, costs: ArrayLike, lengths: ArrayLike) -> None:
        """Take in finished episodes, (E,) each, in the order in which they finished."""
        r, c, n = (np.asarray(part, dtype=np.float64) for part in (returns, costs, lengths))
        if r.ndim != 1 or r.shape != c.shape or r.shape != n.shape:
            raise ValueError(
                f"returns, costs and lengths must be of one shape (episodes,), got {r.shape}, {c.shape}, {n.shape}"
            )
        safe = c == 0
        for episode in np.stack([r, c, n, safe, np.where(safe, r, 0.0)], axis=1):
            # Means are taken anew rather than updated, so that no rounding builds up over a run.
            self._window = np.concatenate([self._window, episode[None]])[-WINDOW:]
            self._noted = np.concatenate([self._noted, self._window.mean(axis=0)[None]])

    @property
    def begun(self) -> bool:
        """Whether any episode has finished."""
        return len(self._window) > 0

    def epoch_statistics(self) -> dict[str, float]:
        """The statistics of this epoch and the number of its `episodes`; then the next epoch begins.

        An epoch in which no episode finished repeats the statistics before it; NaN if there were none.
        """
        episodes = len(self._noted)
        if episodes:
            self._last = self._noted.mean(axis=0)
            self._noted = self._noted[:0]
        return {**dict(zip(STATISTICS, self._last.tolist(), strict=True)), "episodes": episodes}

    def state_dict(self) -> dict[str, Floats]:
        """Everything the next statistics depend on."""
        return {"window": self._window.copy(), "noted": self._noted.copy(), "last": self._last.copy()}

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Continue from a `state_dict`, bit for bit."""
        self._window = np.array(state["window"], dtype=np.float64)
        self._noted = np.array(state["noted"], dtype=np.float64)
        self._last = np.array(state["last"], dtype=np.float64)


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


def _check_counts(name: str, count: int, n: int, confidence: float) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}; an interval needs an episode")
    if not 0 <= count <= n:
        raise ValueError(f"{name} must be between 0 and n = {n}, got {count}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}; use 0.95 for 95 %")
