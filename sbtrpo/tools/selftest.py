"""A few worlds on a GPU beside the same worlds on the CPU: `python -m sbtrpo.tools.selftest`, for `sbtrpo doctor`.

It has a process of its own, because a broken driver may end one.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch

from sbtrpo.envs import make_pool

TASK, WORLDS, STEPS = "SafetyPointGoal2-v0", 8, 20
TOLERANCE = 1e-3
"""Of first observations and of rewards: what single precision makes of so few steps is far below."""


def self_test(engine: str = "gpu", task: str = TASK) -> dict[str, Any]:
    """Play some steps on both engines; returns whether they agree, the largest difference, and seconds."""
    started = time.perf_counter()
    theirs, ours = (make_pool(task, WORLDS, seed=0, engine=name) for name in (engine, "cpu"))
    first, expected = theirs.reset()[0], ours.reset()[0]
    ready = time.perf_counter() - started
    gaps, costs = [np.abs(first.cpu().numpy() - expected).max()], True
    rng = np.random.default_rng(0)
    for action in rng.uniform(-1, 1, (STEPS, WORLDS, *ours.single_action_space.shape)):
        there, here = theirs.step(torch.tensor(action, device=theirs.physics.device)), ours.step(action)
        gaps.append(np.abs(there[1].cpu().numpy() - here[1]).max())
        costs = costs and bool((there[2].cpu().numpy() == here[2]).all())
    worst = float(max(gaps))
    return {
        "alike": costs and worst <= TOLERANCE,
        "difference": worst,
        "ready_seconds": ready,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    print(json.dumps(self_test(*sys.argv[1:])))
