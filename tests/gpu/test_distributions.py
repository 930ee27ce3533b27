"""Whole episodes are distributed as on the CPU engine and as in the recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sbtrpo.envs.registry import PAPER_TASKS
from tests.gpu.distributions import STORED, examine, keep, kept
from tests.gpu.engines import ENGINE, HOPPER, ON_GPU
from tests.parity.playing import play


@pytest.mark.slow
@pytest.mark.parametrize("task", PAPER_TASKS if ON_GPU else [HOPPER])
def test_episodes_are_distributed_as_on_the_cpu_and_as_the_originals(task: str, report: Callable[[str], None]) -> None:
    """On a GPU 2,048 episodes under each of two policies; elsewhere a few of the shortest ones."""
    _, result = examine(task, ENGINE, 4096 if ON_GPU else 60, None if ON_GPU else 100, STORED)
    assert result["faults"] == 0
    for side in ("the recordings", "the CPU engine"):
        report(f"{task} beside {side}: least p value times tests {result[side]['least p times tests']:.2g}")
        assert result[side]["least p times tests"] > 0.01


def test_episodes_are_kept_as_they_were_played(tmp_path: Path) -> None:
    played, _ = play(HOPPER, 8, most=100)
    keep(tmp_path / "episodes.npz", {HOPPER: played})
    found = kept(tmp_path / "episodes.npz", HOPPER)
    assert found is not None
    for kind, columns in found.items():
        assert set(columns) == {"return", "cost", "length", "goals", "cost_velocity"}
        for name, values in columns.items():
            np.testing.assert_array_equal(values, played[kind][name].astype(np.float32))
    assert kept(tmp_path / "episodes.npz", "SafetyPointGoal2-v0") is None
