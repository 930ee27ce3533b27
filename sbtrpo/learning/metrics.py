"""What a run is judged by: statistics of finished training episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

WINDOW = 50
"""Episodes in a window."""
STATISTICS = ("reward", "cost", "length", "safety_probability", "safe_reward")


class EpisodeWindows:
    """Means over the last 50 training episodes of all worlds, averaged over an epoch.

    As the published code does, each episode that finishes notes the means of the windows that it has just entered,
    and an epoch's statistic is the mean of what its episodes noted. A safe episode is one without any cost, unless
    `add` is told otherwise; the safe reward of an unsafe one is zero.

    With more worlds than that, whole windows of episodes finish in the same step, and what they note would depend on
    how worlds are numbered. With `whole_epochs`, the window of an epoch with more than 50 episodes therefore holds them
    all, and the statistic is their plain mean in whatever order. The next epoch finds the last 50 in any case.

    >>> windows = EpisodeWindows()
    >>> windows.add([4.0, 2.0], costs=[0, 1], lengths=[10, 10])
    >>> windows.epoch_statistics()["safe_reward"]  # the mean of 4 / 1 and (4 + 0) / 2
    3.0

    Args:
        columns: names of further columns that `add` will be given, so that an epoch before the first episode has their
            statistics, too: NaN. If left out, the first episodes decide.
        whole_epochs: whether a window holds at least the episodes of the epoch.
    """

    def __init__(self, columns: Sequence[str] = (), whole_epochs: bool = False) -> None:
        self._whole_epochs = whole_epochs
        self._set_columns(columns)

    def _set_columns(self, columns: Sequence[str]) -> None:
        """Begin with no episode and these columns beside those of every run."""
        self._columns = tuple(columns)
        taken = [name for name in self._columns if name in (*STATISTICS, "episodes")]
        if taken or len(set(self._columns)) < len(self._columns):
            raise ValueError(f"each column needs a name of its own, none of {STATISTICS}, got {list(self._columns)}")
        width = len(STATISTICS) + len(self._columns)
        self._window: Floats = np.empty((0, width))  # the oldest episode first
        self._noted: Floats = np.empty((0, width))  # a row for each episode of this epoch; NaN where no longer needed
        self._last: Floats = np.full(width, np.nan)

    def add(
        self,
        returns: ArrayLike,
        costs: ArrayLike,
        lengths: ArrayLike,
        columns: Mapping[str, ArrayLike] | None = None,
        safe: ArrayLike | None = None,
    ) -> None:
        """Take in finished episodes, (E,) each, in the order in which they finished.

        Args:
            returns: sums of rewards.
            costs: sums of costs.
            lengths: numbers of steps.
            columns: further numbers of each episode, whose means join the statistics under their names.
            safe: which episodes are safe; those without cost if left out.
        """
        r, c, n = (np.asarray(values, dtype=np.float64) for values in (returns, costs, lengths))
        if r.ndim != 1 or r.shape != c.shape or r.shape != n.shape:
            raise ValueError(
                f"returns, costs and lengths must be of one shape (episodes,), got {r.shape}, {c.shape}, {n.shape}"
            )
        further = {name: np.asarray(values, dtype=np.float64) for name, values in (columns or {}).items()}
        is_safe = c == 0 if safe is None else np.asarray(safe, dtype=np.bool_)
        for name, values in {"safe": is_safe, **further}.items():
            if values.shape != r.shape:
                raise ValueError(f"{name} must be of the shape of returns, {r.shape}, got {values.shape}")
        if len(r):
            self._check_columns(further)
            rest = [further[name] for name in self._columns]
            self._enter(np.stack([r, c, n, is_safe, np.where(is_safe, r, 0.0), *rest], axis=1))

    def _check_columns(self, names: Collection[str]) -> None:
        if not self._columns and not self.begun:
            self._set_columns([*names])
        if set(names) != set(self._columns):
            raise ValueError(
                f"episodes have the further columns {[*names]}, those before them {[*self._columns]}; add the same ones"
            )

    def _enter(self, episodes: Floats) -> None:
        """Put episodes, (E, columns), into the window; note its means as long as the epoch's statistic needs them."""
        count = len(self._noted) + len(episodes) if self._whole_epochs else 0  # in this epoch
        notes = self._means(episodes) if count <= WINDOW else np.full_like(episodes, np.nan)
        self._noted = np.concatenate([self._noted, notes])
        self._window = np.concatenate([self._window, episodes])[-max(count, WINDOW) :]

    def _means(self, episodes: Floats) -> Floats:
        """The means of the windows that episodes enter one after the other.

        Each is taken anew rather than updated, so that no rounding builds up over a run.
        """
        # Where there is no episode yet stands -0.0, the one number that changes no bit of what it is added to.
        nothing = np.full((WINDOW, episodes.shape[1]), -0.0)
        recent = np.concatenate([nothing, self._window, episodes])[-(WINDOW - 1 + len(episodes)) :]
        sums = sliding_window_view(recent, WINDOW, axis=0).sum(axis=-1)
        sizes = np.minimum(len(self._window) + np.arange(1, len(episodes) + 1), WINDOW)
        means: Floats = sums / sizes[:, None]
        return means

    @property
    def begun(self) -> bool:
        """Whether any episode has finished."""
        return len(self._window) > 0

    def epoch_statistics(self) -> dict[str, float]:
        """The statistics of this epoch and the number of its `episodes`; then the next epoch begins.

        An epoch in which no episode finished repeats the statistics before it; NaN if there were none.
        """
        episodes = len(self._noted)
        if self._whole_epochs and episodes > WINDOW:
            # Sums of sorted numbers do not depend on the order in which these came.
            self._last = np.sort(np.ascontiguousarray(self._window[-episodes:].T), axis=1).mean(axis=1)
        elif episodes:
            self._last = self._noted.mean(axis=0)
        self._window, self._noted = self._window[-WINDOW:], self._noted[:0]
        names = (*STATISTICS, *self._columns)
        return {**dict(zip(names, self._last.tolist(), strict=True)), "episodes": episodes}

    def state_dict(self) -> dict[str, Any]:
        """Everything the next statistics depend on."""
        names = {"columns": [*self._columns]} if self._columns else {}
        return {"window": self._window.copy(), "noted": self._noted.copy(), "last": self._last.copy(), **names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, bit for bit; it must be of windows with the same further columns."""
        names = state.get("columns", [])
        if (self._columns or self.begun) and set(names) != set(self._columns):
            raise ValueError(
                f"the state has the further columns {[*names]}, these windows have {[*self._columns]};"
                " go on with the settings that the run began with"
            )
        self._set_columns(names)
        self._window = np.array(state["window"], dtype=np.float64)
        self._noted = np.array(state["noted"], dtype=np.float64)
        self._last = np.array(state["last"], dtype=np.float64)
