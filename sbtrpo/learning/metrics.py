"""What a run is judged by: statistics of finished training episodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
