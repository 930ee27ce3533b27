"""What several seeds, and several tasks, amount to: interquartile means and stratified bootstrap intervals.

As in Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS 2021), and their
package rliable, which a test compares with these functions where it is installed. (It needs an outdated pandas, and
takes a second for what takes milliseconds here, since there the resamples are not handled together.)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Method = TypeVar("Method", bound=Hashable)
"""Whatever tells methods and their settings apart."""
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


# ---- over several tasks ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregate:
    """An interquartile mean and its 95 % bootstrap interval."""

    iqm: float
    low: float
    high: float


@dataclass(frozen=True)
class MethodOverall:
    """One method over all tasks that count."""

    runs: int
    safety_probability: Aggregate
    safe_reward: Aggregate
    """Scaled, on each task, to its worst and its best run."""


@dataclass(frozen=True)
class Overall(Generic[Method]):
    """Methods over the tasks that they share."""

    tasks: list[str]
    methods: dict[Method, MethodOverall]


def overall(
    safety_probability: Mapping[Method, Mapping[str, Floats]], safe_reward: Mapping[Method, Mapping[str, Floats]]
) -> Overall[Method]:
    """Methods over all tasks of `common_tasks`.

    Args:
        safety_probability: of each method and task, that of each run, (runs,).
        safe_reward: likewise, of the same methods and tasks.
    """
    methods, tasks = common_tasks({method: list(scores) for method, scores in safe_reward.items()})
    rewards = scaled({method: {task: safe_reward[method][task] for task in tasks} for method in methods})
    found = {
        method: MethodOverall(
            runs=sum(len(scores) for scores in rewards[method].values()),
            safety_probability=aggregate([safety_probability[method][task] for task in tasks]),
            safe_reward=aggregate(list(rewards[method].values())),
        )
        for method in methods
    }
    return Overall(tasks, found)


def aggregate(strata: Sequence[Floats]) -> Aggregate:
    """Of all scores together; `strata` as of `bootstrap_interval`, but the order of runs makes no difference."""
    return Aggregate(float(interquartile_mean(np.concatenate(strata))), *bootstrap_interval([*map(np.sort, strata)]))


def final_values(courses: Iterable[Floats], last_epochs: int) -> Floats:
    """Of every run the mean over its last epochs; a run without a number in them is left out.

    >>> final_values([np.array([9.0, 1.0, 3.0]), np.array([np.nan])], last_epochs=2).tolist()
    [2.0]
    """
    ends = [course[-last_epochs:] for course in courses]
    return np.array([float(end[np.isfinite(end)].mean()) for end in ends if np.isfinite(end).any()])


def common_tasks(tasks: Mapping[Method, Collection[str]]) -> tuple[list[Method], list[str]]:
    """Which methods can be compared on which tasks: the largest table, methods times tasks, without a gap.

    Of tables of the same size that with more tasks. Several methods without a common task cannot be compared.

    >>> common_tasks({"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": ["y", "z"], "d": ["z"]})
    (['a', 'b'], ['x', 'y', 'z'])
    >>> common_tasks({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x", "y"]})
    (['a', 'b', 'c'], ['x', 'y'])
    """
    covered = {method: set(names) for method, names in tasks.items() if names}
    pairs = combinations(covered.values(), 2)
    shared = [one & other for one, other in pairs] if len(covered) > 1 else list(covered.values())
    tables = [([method for method in covered if names <= covered[method]], names) for names in shared if names]
    if not tables:
        return [], []
    methods, names = max(tables, key=lambda table: (len(table[0]) * len(table[1]), len(table[1])))
    return methods, sorted(names)


def scaled(scores: Mapping[Method, Mapping[str, Floats]]) -> dict[Method, dict[str, Floats]]:
    """On each task 0 for the worst and 1 for the best run of all methods; 0 for all where they are equal.

    >>> found = scaled({"a": {"x": np.array([1.0, 5.0])}, "b": {"x": np.array([2.0])}})
    >>> found["a"]["x"].tolist(), found["b"]["x"].tolist()
    ([0.0, 1.0], [0.25])
    """
    found: dict[Method, dict[str, Floats]] = {method: {} for method in scores}
    for task in dict.fromkeys(task for by_task in scores.values() for task in by_task):
        values = {method: by_task[task] for method, by_task in scores.items() if task in by_task}
        everything = np.concatenate(list(values.values()))
        low, high = float(everything.min()), float(everything.max())
        for method, own in values.items():
            found[method][task] = (own - low) / ((high - low) or 1.0)
    return found
