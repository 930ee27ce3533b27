"""Runs of the version before methods owned their settings load, go on and count as they did (tests/data/old_runs)."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import sbtrpo
from sbtrpo.benchmark.collect import collect, final, read_table
from sbtrpo.benchmark.command import benchmark
from sbtrpo.benchmark.plan import Plan, run_path
from sbtrpo.cli import app as cli
from sbtrpo.learning.trainer import Trainer
from sbtrpo.report.runs import read_runs
from sbtrpo.runs.card import export_policy
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.policy_file import stored_policy
from sbtrpo.runs.provenance import provenance

OLD = Path(__file__).parents[1] / "data" / "old_runs"
SB_TRPO, PPO_LAG = "ToyCorridor-v0/sb-trpo/seed0-54955db8", "ToyCorridor-v0/ppo_lag/seed0-9bc0b5d5"
CPO, CORRECTED_CPO = "ToyCorridor-v0/cpo/seed0-85330126", "ToyCorridor-v0/cpo/seed0-25b4ea18"
INTERRUPTED = {SB_TRPO: "sb-trpo.csv", PPO_LAG: "ppo_lag.csv"}
FINISHED = [CPO, CORRECTED_CPO]
FOLDERS = [*INTERRUPTED, *FINISHED]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(OLD / "runs", tmp_path / "runs"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_went_on_as_the_whole_run(run: Path, whole: Path) -> None:
    """To the last byte where numbers are rounded as they were; the epochs before the stop are that everywhere."""
    ours, theirs = run.joinpath("metrics.csv").read_bytes(), whole.read_bytes()
    assert ours.splitlines()[:3] == theirs.splitlines()[:3]
    origin = json.loads((run / "run.json").read_text())
    if all(origin[name] == provenance()[name] for name in ("platform", "torch_version", "numpy_version")):
        assert ours == theirs
    epochs = [[float(x) for x in content.splitlines()[3].split(b",")] for content in (ours, theirs)]
    np.testing.assert_allclose(*epochs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (SB_TRPO, {"algo": "sb-trpo", "beta": 0.6, "cost_limit": None, "advantage": "mc", "critic_passes": 10}),
        (PPO_LAG, {"algo": "ppo_lag", "cost_limit": 5.0, "policy_passes": 3, "multiplier_max": None, "beta": None}),
        (CPO, {"algo": "cpo", "critic_passes": 2, "kl_reduction": "mean_over_dims", "cpo_as_published": True}),
        (CORRECTED_CPO, {"fidelity": "corrected", "kl_reduction": "sum_over_dims", "cpo_as_published": False}),
    ],
)
def test_an_old_folder_opens_with_its_settings(name: str, expected: dict[str, object], runs: Path) -> None:
    folder = RunFolder.open(runs / name)
    config, epochs = folder.config, 2 if name in INTERRUPTED else 3
    assert (config.task, config.hidden, config.epochs) == ("ToyCorridor-v0", (8, 8), 3)
    assert (config.constraints, config.get("policy_minibatches") or 0) == (("sum",), 0)
    assert {setting: config.get(setting) for setting in expected} == expected
    assert folder.metrics()["epoch"].tolist() == list(range(1, epochs + 1))
    assert folder.episodes()["epoch"].tolist() == [epoch for epoch in range(1, epochs + 1) for _ in range(4)]


@pytest.mark.parametrize("name", FOLDERS)
def test_an_old_policy_is_evaluated(name: str, runs: Path) -> None:
    evaluation = sbtrpo.evaluate(runs / name, episodes=4)
    assert math.isfinite(evaluation.reward)
    assert (evaluation.episodes, evaluation.length) == (4, 50)


def test_an_old_policy_is_known_as_it_was(runs: Path) -> None:
    """The folders of runs that begin with it go by that: settings that came later are not in its file."""
    identities = [stored_policy(runs / name).identity for name in (SB_TRPO, CPO)]
    assert identities == ["sb-trpo-seed0-epoch2@7be084ac4f0f", "cpo-seed0-epoch3@11c93ebaea44"]


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_goes_on_as_if_it_had_never_stopped(name: str, runs: Path) -> None:
    sbtrpo.resume(runs / name, quiet=True)
    assert_went_on_as_the_whole_run(runs / name, OLD / "whole" / INTERRUPTED[name])
    assert json.loads((runs / name / "summary.json").read_text())["epochs"] == 3


def test_a_plan_finds_its_runs_in_the_folders_that_they_have(runs: Path) -> None:
    configs = Plan.from_file(OLD / "plan.toml").runs()
    assert [run_path(runs, config).relative_to(runs).as_posix() for config in configs] == FOLDERS
    for config in configs:
        other = config.replace(gamma=0.9)
        assert not run_path(runs, other).exists()
        assert not run_path(runs, config.replace(seed=1)).exists()


def test_a_benchmark_trains_no_old_run_anew(runs: Path) -> None:
    before = {name: contents(runs / name) for name in FINISHED}
    assert benchmark(OLD / "plan.toml", None, runs, workers=1, quiet=True) == 0
    assert sorted(path.parent.relative_to(runs).as_posix() for path in runs.rglob("config.toml")) == sorted(FOLDERS)
    assert {name: contents(runs / name) for name in FINISHED} == before
    for name, whole in INTERRUPTED.items():
        assert_went_on_as_the_whole_run(runs / name, OLD / "whole" / whole)
    assert collect(runs).states == dict.fromkeys(FOLDERS, "done")  # and none is pending under another name


def test_old_runs_are_collected_and_reported(runs: Path, tmp_path: Path) -> None:
    assert cli.main(["collect", str(runs), "--out", str(tmp_path / "results.parquet"), "--quiet"]) == 0
    table = read_table(tmp_path / "results.parquet")
    assert table.num_rows == 2 * 2 + 2 * 3
    complete = [row for row in final(table).to_pylist() if row["seeds"]]
    assert [(row["algo"], row["fidelity"]) for row in complete] == [("cpo", "corrected"), ("cpo", "paper")]
    found = read_runs(table)
    assert [variant.title for variant in found.variants] == [
        "SB-TRPO, β = 0.6",
        "PPO-Lag, limit 5",
        "CPO",
        "CPO, corrected",
    ]
    assert "not the default: hidden = 8 8 (all methods)" in found.notes
    for source in (runs, tmp_path / "results.parquet"):
        out = tmp_path / f"report of {source.name}"
        assert cli.main(["report", str(source), "--out", str(out)]) == 0
        assert "PPO-Lag, limit 5" in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_run_begins_with_the_policy_of_an_old_one(name: str, tmp_path: Path) -> None:
    file, _ = export_policy(OLD / "runs" / name, tmp_path / "policy", episodes=4)
    assert sbtrpo.evaluate(file, 6).reward == sbtrpo.evaluate(OLD / "runs" / name, 6).reward
    begun = Trainer(RunFolder.open(OLD / "runs" / name).config.replace(init_from=str(file)))
    assert begun.start is not None
    assert ("critics" in begun.beginning) == (begun.start.critics is not None)
    for ours, theirs in zip(begun.policy.params, sbtrpo.load_policy(OLD / "runs" / name).params, strict=True):
        np.testing.assert_array_equal(ours, theirs)
