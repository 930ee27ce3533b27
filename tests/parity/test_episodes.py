"""Episode parity: under two random policies, whole episodes of ours are distributed as recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import sbtrpo
from sbtrpo.envs.registry import PAPER_TASKS
from tests.parity.recordings import episodes

WORLDS = 200  # half of them under each policy
HELD_STEPS = 20


def play(task: str) -> dict[str, dict[str, Any]]:
    """The first episode of each world under both policies: {kind: {statistic: (episodes,) or (episodes, obs_dim)}}."""
    pool = sbtrpo.make_pool(task, num_worlds=WORLDS, seed=2024)
    pool.reset()
    held = np.arange(WORLDS) >= WORLDS // 2
    rng = np.random.default_rng(2024)
    shape = (WORLDS, *pool.single_action_space.shape)
    low, high = pool.single_action_space.low, pool.single_action_space.high
    running = np.ones(WORLDS, bool)
    sums, squares = np.zeros((2, WORLDS, pool.task.observation_size))
    found = {name: np.zeros(WORLDS) for name in ("return", "cost", "length", "goals", *pool.task.cost_names)}
    action, step = np.zeros(shape), 0
    while running.any():
        draw = rng.standard_normal(shape)
        action = np.where(held[:, None] & (step % HELD_STEPS != 0), action, np.clip(draw, low, high))
        obs, _, _, _, _, info = pool.step(action)
        last = obs
        if "final_obs" in info:
            ended = info["_episode"] & running
            last = np.where(info["_final_obs"][:, None], info["final_obs"], obs)
            for name, values in found.items():
                values[ended] = info["episode"][name][ended]
        sums[running] += last[running]
        squares[running] += last[running] ** 2
        if "final_obs" in info:
            running &= ~info["_episode"]
        step += 1
    assert pool.faults == 0
    found["obs_mean"] = sums / found["length"][:, None]
    found["obs_meansq"] = squares / found["length"][:, None]
    return {kind: {n: v[mask] for n, v in found.items()} for kind, mask in (("normal", ~held), ("held", held))}


@pytest.mark.slow
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_episodes_are_distributed_as_the_originals(task: str, report: Callable[[str], None]) -> None:
    ours = play(task)
    recorded = episodes(task)
    for kind, played in ours.items():
        theirs = [episode for episode in recorded if episode["kind"] == kind]
        assert len(theirs) == 20
        p = {}
        for name, key in (("return", "ret"), ("cost", "cost"), ("length", "length"), ("goals", "goals")):
            p[name] = stats.ks_2samp(played[name], [episode[key] for episode in theirs]).pvalue
        for name in played:
            if name.startswith("cost_") and name in theirs[0]["components"]:
                values = [episode["components"][name] for episode in theirs]
                p[name] = stats.ks_2samp(played[name], values).pvalue
        for name in ("obs_mean", "obs_meansq"):
            values = np.asarray([episode[name] for episode in theirs])
            for k in range(values.shape[1]):
                # Recorded to six digits; entries that are constant but for rounding must not tell the two apart.
                mine = np.asarray([float(f"{x:.5g}") for x in played[name][:, k]])
                p[f"{name} {k}"] = stats.ks_2samp(mine, [float(f"{x:.5g}") for x in values[:, k]]).pvalue
        worst = min(p, key=lambda name: p[name])
        means = ", ".join(
            f"{name} {played[name].mean():.3g} / {np.mean([e[key] for e in theirs]):.3g}"
            for name, key in (("return", "ret"), ("cost", "cost"), ("length", "length"), ("goals", "goals"))
        )
        report(f"{task} {kind}: {means} (ours / recorded); least of {len(p)} p values {p[worst]:.3f} ({worst})")
        assert p[worst] > 0.01 / len(p)
