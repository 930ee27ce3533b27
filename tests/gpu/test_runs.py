"""Runs go on, and policies are judged, on either engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.runs.evaluation import load_policy, play
from sbtrpo.runs.folder import RunFolder
from tests.gpu.engines import DEVICE, ENGINE, HOPPER, LIGHT
from tests.resume.test_resume import edit, rows

SHORT = TrainConfig(task=HOPPER, num_envs=4, steps_per_epoch=80, total_steps=160, hidden=(16,), checkpoint_every=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", [HOPPER, LIGHT])
@pytest.mark.parametrize(("first", "then"), [(ENGINE, "cpu"), ("cpu", ENGINE), (ENGINE, ENGINE)])
def test_a_run_goes_on_with_the_other_engine(tmp_path: Path, task: str, first: Any, then: Any) -> None:
    run = sbtrpo.train(SHORT.replace(task=task, engine=first), tmp_path / "run", quiet=True)
    edit(run / "config.toml", "total_steps = 320")
    sbtrpo.resume(run, quiet=True, engine=then)
    assert rows(run) == 4
    folder = RunFolder.open(run)
    assert folder.is_finished
    assert folder.config.engine == then
    summary = json.loads((run / "summary.json").read_text())
    assert summary["faults"] == 0 if "faults" in summary else True


@pytest.mark.slow
def test_a_policy_is_worth_the_same_on_either_engine(tmp_path: Path) -> None:
    """The same layouts and frozen statistics; noise and rounding differ, so that means agree within their intervals."""
    run = sbtrpo.train(SHORT.replace(engine=ENGINE), tmp_path / "run", quiet=True)
    ours, theirs = (sbtrpo.evaluate(run, episodes=60, seed=5, engine=engine) for engine in (ENGINE, "cpu"))
    assert ours.episodes == theirs.episodes == 60
    for name in ("reward", "cost"):
        spread = np.hypot(getattr(ours, f"{name}_std"), getattr(theirs, f"{name}_std")) / np.sqrt(60)
        assert abs(getattr(ours, name) - getattr(theirs, name)) <= 3 * spread + 1e-9
    low, high = ours.safety_probability_interval
    other_low, other_high = theirs.safety_probability_interval
    assert low <= other_high
    assert other_low <= high
    assert ours.faults == theirs.faults == 0


@pytest.mark.slow
def test_every_world_contributes_as_many_episodes_on_a_device(tmp_path: Path) -> None:
    """Deterministic actions from the same layouts: episode by episode what the CPU engine gives."""
    run = sbtrpo.train(SHORT.replace(engine="cpu"), tmp_path / "run", quiet=True)
    played = [
        play(load_policy(run, "last", device), HOPPER, 12, 3, True, constraints=["each"], engine=engine)
        for engine, device in ((ENGINE, DEVICE), ("cpu", None))
    ]
    (ours, faults), (theirs, _) = played
    assert faults == 0
    assert ours.keys() == theirs.keys()
    assert ours["length"].shape == (12,)
    agree = ours["length"] == theirs["length"]  # rounding grows, and may end an episode a step earlier
    assert agree.mean() >= 0.5
    np.testing.assert_allclose(ours["return"][agree], theirs["return"][agree], rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_evaluations_on_fresh_worlds_leave_a_run_as_it_is(tmp_path: Path) -> None:
    config = SHORT.replace(engine=ENGINE)
    plain = sbtrpo.train(config, tmp_path / "plain", quiet=True)
    run = sbtrpo.train(config.replace(evaluate_every=1, evaluate_episodes=4), tmp_path / "run", quiet=True)
    assert RunFolder.open(run).evaluations()["episodes"].tolist() == [4, 4]
    if DEVICE == "cpu":  # on a GPU two runs part by rounding
        assert (run / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()
