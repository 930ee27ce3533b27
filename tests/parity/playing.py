"""Whole episodes under the two recorded random policies, on any engine, and how they compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

import sbtrpo
from sbtrpo.envs.arrays import Array, to_numpy
from tests.parity.recordings import episodes

HELD_STEPS = 20
"""The second policy holds its action for so many steps; both draw from a normal distribution."""
KINDS = ("normal", "held")
BASIC = {"return": "ret", "cost": "cost", "length": "length", "goals": "goals"}
"""Statistics of episodes, and what they are called in the recordings."""
LOOK = 50
"""Steps between two looks whether all episodes have ended."""
Played = dict[str, dict[str, Any]]
"""{policy: {statistic: (episodes,), or (episodes, obs_dim)}}"""


def play(task: str, worlds: int, engine: str = "cpu", seed: int = 2024, most: int | None = None) -> tuple[Played, int]:
    """The first episode of each world, half of them under each policy, and the number of worlds that failed.

    Args:
        task: its id.
        worlds: how many.
        engine: what simulates them.
        seed: of layouts and actions.
        most: stop after so many steps, with the episodes that have ended by then.
    """
    pool = sbtrpo.make_pool(task, num_worlds=worlds, seed=seed, engine=engine)
    obs, _ = pool.reset()
    draw, device = _normal(pool, seed), pool.physics.device
    low, high = (np.asarray(bound)[None] for bound in (pool.single_action_space.low, pool.single_action_space.high))
    held = np.arange(worlds) >= worlds // 2
    names = (*BASIC, *pool.task.cost_names)
    if device is None:
        running = np.ones(worlds, bool)
        found: dict[str, Array] = {name: np.zeros(worlds) for name in names}
        sums, squares = np.zeros((2, *obs.shape))
    else:
        running = torch.ones(worlds, dtype=torch.bool, device=device)
        found = {name: torch.zeros(worlds, dtype=torch.float64, device=device) for name in names}
        sums, squares = torch.zeros((2, *obs.shape), dtype=torch.float64, device=device)
        low, high, held = (torch.tensor(values, device=device) for values in (low, high, held))
    where: Any = np.where if device is None else torch.where
    action, step = draw(), 0
    while step < (most or pool.spec.episode_length) and (step % LOOK or bool(running.any())):
        fresh = draw()
        fresh = np.clip(fresh, low, high) if device is None else fresh.clamp(low, high)
        action = fresh if step % HELD_STEPS == 0 else where(held[:, None], action, fresh)
        obs, _, _, _, _, info = pool.step(action)
        last = obs
        if "final_obs" in info:
            ended = info["_episode"] & running
            last = where(info["_final_obs"][:, None], info["final_obs"], obs)
            found = {name: where(ended, info["episode"][name], values) for name, values in found.items()}
        seen = where(running[:, None], last, 0.0 * last)
        sums, squares = sums + seen, squares + seen * seen
        if "final_obs" in info:
            running = running & ~ended
        step += 1
    result = {name: to_numpy(values) for name, values in found.items()}
    whole = ~to_numpy(running)
    lengths = np.maximum(result["length"], 1)[:, None]
    result["obs_mean"], result["obs_meansq"] = to_numpy(sums) / lengths, to_numpy(squares) / lengths
    of_kind = {"normal": ~to_numpy(held), "held": to_numpy(held)}
    played = {kind: {name: values[mask & whole] for name, values in result.items()} for kind, mask in of_kind.items()}
    return played, pool.faults


def _normal(pool: sbtrpo.Pool, seed: int) -> Any:
    """What draws a normal action for every world."""
    shape, device = (pool.num_worlds, *pool.single_action_space.shape), pool.physics.device
    if device is None:
        rng = np.random.default_rng(seed)
        return lambda: rng.standard_normal(shape)
    generator = torch.Generator(device).manual_seed(seed)
    return lambda: torch.randn(shape, generator=generator, device=device)


def recorded(task: str) -> Played:
    """The recorded episodes of a task."""
    found: Played = {}
    for kind in KINDS:
        theirs = [episode for episode in episodes(task) if episode["kind"] == kind]
        columns = {name: [episode[key] for episode in theirs] for name, key in BASIC.items()}
        columns |= {name: [episode["components"][name] for episode in theirs] for name in theirs[0]["components"]}
        columns |= {name: [episode[name] for episode in theirs] for name in ("obs_mean", "obs_meansq")}
        found[kind] = {name: np.asarray(values, float) for name, values in columns.items()}
    return found


@dataclass(frozen=True)
class Comparison:
    """A statistic of episodes on both sides."""

    kind: str
    name: str
    p: float
    """Of Kolmogorov and Smirnov's test that both are distributed alike."""
    ours: float
    """Mean."""
    theirs: float
    half_width: float
    """Of the 95 % interval of the means' difference."""

    @property
    def agree(self) -> bool:
        """Whether the interval of the difference holds zero."""
        return abs(self.ours - self.theirs) <= self.half_width


def compare(ours: Played, theirs: Played) -> list[Comparison]:
    """All statistics that both sides have, for each policy."""
    found = []
    for kind in KINDS:
        for name in ours[kind]:
            if name not in theirs[kind]:
                continue
            mine, wanted = (_digits(side[kind][name]) for side in (ours, theirs))
            for k in range(mine.shape[1]):
                label = f"{name} {k}" if ours[kind][name].ndim == 2 else name
                found.append(_comparison(kind, label, mine[:, k], wanted[:, k]))
    return found


def _comparison(kind: str, name: str, mine: Any, theirs: Any) -> Comparison:
    spread = np.sqrt(mine.var(ddof=1) / len(mine) + theirs.var(ddof=1) / len(theirs))
    p = float(stats.ks_2samp(mine, theirs).pvalue)
    return Comparison(kind, name, p, float(mine.mean()), float(theirs.mean()), float(1.96 * spread))


def _digits(values: Any) -> Any:
    """Columns; means of observations to the five digits that the recordings have.

    Entries that are constant but for rounding must not tell the two apart.
    """
    if values.ndim == 1:
        return values[:, None].astype(float)
    return np.asarray([[float(f"{x:.5g}") for x in row] for row in values]).reshape(values.shape)


def worst(comparisons: list[Comparison]) -> tuple[Comparison, float]:
    """The one that agrees least, and its p value times their number (Bonferroni)."""
    least = min(comparisons, key=lambda comparison: comparison.p)
    return least, least.p * len(comparisons)
