"""Statistics over seeds and tasks: interquartile means and stratified bootstrap intervals.

The estimates are those of Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS
2021). A test compares these functions with the authors' package rliable, where that is installed. rliable needs an
outdated pandas and takes a second where this file takes milliseconds, because it handles resamples one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sbtrpo.runs.curves import CLOSING_STEPS

Floats = NDArray[np.float64]
MethodKey = TypeVar("MethodKey", bound=Hashable)
"""What identifies a method and its settings: a name or a `Variant`."""
RESAMPLES = 2000
_TRIM = 0.25
MOST_SETS = 5_000
"""Sets of tasks from which the search for the largest table goes on; 2^12 are all that twelve methods can share."""


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
        strata: the scores of each task, (runs,). Each task is resampled separately and so keeps its weight.
        confidence: the probability that the interval holds the true value.
        resamples: how many resamples are drawn.
        seed: seeds the resampling; the same scores give the same interval.
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
    """One method over all tasks that are compared."""

    runs: int
    safety_probability: Aggregate
    safe_reward: Aggregate
    """Scaled on each task: 0 for its worst run, 1 for its best."""


@dataclass(frozen=True)
class OverallScores(Generic[MethodKey]):
    """Methods over the tasks that they share."""

    tasks: list[str]
    methods: dict[MethodKey, MethodOverall]


def overall(
    safety_probability: Mapping[MethodKey, Mapping[str, Floats]], safe_reward: Mapping[MethodKey, Mapping[str, Floats]]
) -> OverallScores[MethodKey]:
    """Each method's scores over the tasks that `common_tasks` chooses.

    Args:
        safety_probability: by method and task, the value of each run, (runs,).
        safe_reward: likewise, for the same methods and tasks.
    """
    methods, tasks = common_tasks({method: list(scores) for method, scores in safe_reward.items()})
    rewards = scaled({method: {task: safe_reward[method][task] for task in tasks} for method in methods})
    by_method = {
        method: MethodOverall(
            runs=sum(len(scores) for scores in rewards[method].values()),
            safety_probability=aggregate([safety_probability[method][task] for task in tasks]),
            safe_reward=aggregate(list(rewards[method].values())),
        )
        for method in methods
    }
    return OverallScores(tasks, by_method)


def aggregate(strata: Sequence[Floats]) -> Aggregate:
    """Over all scores together. `strata` is as in `bootstrap_interval`; here the order of runs makes no difference."""
    return Aggregate(float(interquartile_mean(np.concatenate(strata))), *bootstrap_interval([*map(np.sort, strata)]))


def closing(course: Floats, steps: Floats, last_epochs: int) -> Floats:
    """What a run's final value is the mean of: the values of its last epochs, given all and the steps after each.

    They are fewer where fewer have 400,000 steps: of a run with long epochs 20 would be much of it.

    >>> len(closing(np.zeros(100), np.arange(1, 101) * 20_000.0, last_epochs=20))
    20
    >>> len(closing(np.zeros(50), np.arange(1, 51) * 250_000.0, last_epochs=20))
    2
    """
    return course[-last_epochs:][steps[-last_epochs:] > steps[-1:] - CLOSING_STEPS]


def final_values(courses: Iterable[Floats]) -> Floats:
    """Each run's mean over its last epochs, which are given; a run that has no finite value there is left out.

    >>> final_values([np.array([1.0, 3.0]), np.array([np.nan])]).tolist()
    [2.0]
    """
    ends = list(courses)
    return np.array([float(end[np.isfinite(end)].mean()) for end in ends if np.isfinite(end).any()])


def common_tasks(tasks: Mapping[MethodKey, Collection[str]]) -> tuple[list[MethodKey], list[str]]:
    """Which methods can be compared on which tasks: the largest table of methods and tasks without a gap.

    Of two tables of the same size, the one with more tasks wins, then the one whose methods are named first. Methods
    without a common task cannot be compared.

    >>> common_tasks({"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": ["y", "z"], "d": ["z"]})
    (['a', 'b'], ['x', 'y', 'z'])
    >>> common_tasks({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x", "y"]})
    (['a', 'b', 'c'], ['x', 'y'])
    """
    covered = {method: set(names) for method, names in tasks.items() if names}
    names = sorted(set().union(*covered.values()))
    rows = [sum(1 << k for k, name in enumerate(names) if name in has) for has in covered.values()]
    tables = [(-shared.bit_count(), _owners(shared, rows), shared) for shared in _largest_shared(rows)]
    if not tables:
        return [], []
    _, owners, shared = min(tables)
    return [list(covered)[k] for k in owners], [name for k, name in enumerate(names) if shared >> k & 1]


def _owners(tasks: int, rows: Sequence[int]) -> list[int]:
    return [k for k, row in enumerate(rows) if tasks & ~row == 0]


def _largest_shared(rows: Sequence[int]) -> list[int]:
    """The sets of tasks that make the largest tables with the methods that have them: with two, if there are two.

    A set, such as the tasks of a method, is a number with a bit for each task. All that methods share come about by
    taking in one method after the other. A set is dropped if no table as large as one that was found can come of it:
    r methods that have k of its tasks each give at most r * k cells. If more than `MOST_SETS` are left, those that may
    give most go on; this takes more than twelve methods and tasks, and gaps without any pattern.
    """
    found: dict[int, int] = {}
    """By set, the cells of its table."""
    most: dict[int, int] = {}
    """By set, the cells of the largest table that may come of it."""
    largest = 1
    for row in sorted(set(rows), key=lambda row: (-row.bit_count(), row)):
        for tasks in {row, *(row & other for other in most)} - most.keys():
            counts = sorted(((tasks & other).bit_count() for other in rows), reverse=True)
            most[tasks] = max(place * count for place, count in enumerate(counts, start=1))
            if (owners := len(_owners(tasks, rows))) >= min(2, len(rows)):
                found[tasks] = owners * tasks.bit_count()
                largest = max(largest, found[tasks])
        hopeful = sorted((-cells, tasks) for tasks, cells in most.items() if cells >= largest)
        most = {tasks: -cells for cells, tasks in hopeful[:MOST_SETS]}
    return [tasks for tasks, cells in found.items() if cells == largest]


def scaled(scores: Mapping[MethodKey, Mapping[str, Floats]]) -> dict[MethodKey, dict[str, Floats]]:
    """Scores from 0 (the worst run of a task, over all methods) to 1 (the best); 0 for all if they are equal.

    >>> shares = scaled({"a": {"x": np.array([1.0, 5.0])}, "b": {"x": np.array([2.0])}})
    >>> shares["a"]["x"].tolist(), shares["b"]["x"].tolist()
    ([0.0, 1.0], [0.25])
    """
    scaled_scores: dict[MethodKey, dict[str, Floats]] = {method: {} for method in scores}
    for task in dict.fromkeys(task for by_task in scores.values() for task in by_task):
        by_method = {method: by_task[task] for method, by_task in scores.items() if task in by_task}
        everything = np.concatenate(list(by_method.values()))
        low, high = float(everything.min()), float(everything.max())
        for method, values in by_method.items():
            scaled_scores[method][task] = (values - low) / ((high - low) or 1.0)
    return scaled_scores
