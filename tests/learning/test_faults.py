"""Crashing is no way to be safe: what a fault has cut counts as unsafe or apart, and is told wherever numbers are."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import sbtrpo
from sbtrpo.benchmark.collect import collect, final
from sbtrpo.cli import app as cli
from sbtrpo.config import TrainConfig
from sbtrpo.envs.faults import EnvironmentFailure, Tolerance
from sbtrpo.learning.metrics import EpisodeWindows
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.evaluations import kept
from sbtrpo.runs.folder import RunFolder
from tests.envs.foreign.worlds import name_of

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:(a world|worlds) of .* failed :RuntimeWarning"),
]
CUT = "episodes .* were cut by a fault"


def small(task: str = name_of("cliff"), **settings: Any) -> TrainConfig:
    sizes = {"num_envs": 4, "threads": 2, "steps_per_epoch": 800, "total_steps": 4000, "hidden": (8,)}
    return TrainConfig(**{"task": task, **sizes, **settings})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of either kind in an environment that raises beyond a line and reports no cost."""
    root = tmp_path_factory.mktemp("runs")
    for faulted in ("unsafe", "apart"):
        with pytest.warns(RuntimeWarning, match=CUT):
            sbtrpo.train(small(faulted=faulted), root / faulted, quiet=True)
    return root


def test_faulted_episodes_are_marked_and_unsafe_in_all_that_a_run_records(runs: Path) -> None:
    folder = RunFolder.open(runs / "unsafe")
    episodes = pyarrow.parquet.read_table(runs / "unsafe" / "episodes.parquet").to_pydict()
    faulted, epoch = np.array(episodes["faulted"]), np.array(episodes["epoch"])
    assert faulted.dtype == np.bool_
    assert 0 < faulted.sum() < len(faulted)
    np.testing.assert_array_equal(episodes["cost"], faulted)  # the environment itself reports none
    np.testing.assert_array_equal(episodes["cost_high"], np.zeros(len(faulted)))
    metrics, windows = folder.metrics(), EpisodeWindows()
    for k in range(folder.config.epochs):
        of_epoch = epoch == k + 1
        windows.add(*(np.array(episodes[name])[of_epoch] for name in ("return", "cost", "length")))
        expected = windows.epoch_statistics()
        assert expected["safety_probability"] < 1
        for name, value in expected.items():
            assert metrics[name][k] == value
        assert metrics["faulted_episodes"][k] == faulted[of_epoch].sum()
    assert metrics["faults"][-1] == metrics["faulted_episodes"].sum()
    assert metrics["cost_statistic"][-1] == metrics["cost"][-1] > 0  # what the method reads


def test_apart_they_are_counted_and_left_out_of_the_statistics(runs: Path) -> None:
    ours, theirs = (RunFolder.open(runs / name).metrics() for name in ("apart", "unsafe"))
    for name in ("faulted_episodes", "episodes"):
        assert ours[name][0] == theirs[name][0] > 0  # the first epoch is played by the same policy
    assert (ours["safety_probability"] == 1).all()
    assert (ours["cost"] == 0).all()
    assert ours["length"][0] == 40 > theirs["length"][0]


@pytest.mark.parametrize("faulted", ["unsafe", "apart"])
def test_the_learner_pays_for_a_fault_where_it_counts_as_unsafe(faulted: str) -> None:
    trainer = Trainer(small(faulted=faulted, constraints=("each",)))
    rollout = trainer.collector.collect(200)
    trainer.collector.pool.close()  # type: ignore[attr-defined]
    at = rollout.episodes["step"][rollout.faulted], rollout.episodes["world"][rollout.faulted]
    paid = np.zeros((200, 4))
    paid[at] = faulted == "unsafe"
    assert len(at[0]) == rollout.faults > 0
    np.testing.assert_array_equal(rollout.cost, paid)
    assert rollout.truncated[at].all()
    assert not rollout.terminated[at].any()
    expected = rollout.faulted & (faulted == "unsafe")
    np.testing.assert_array_equal(rollout.episodes["constraint_high"], expected)


def test_a_simulation_that_diverges_is_unsafe_in_every_constraint(tmp_path: Path) -> None:
    config = small("SafetyPointGoal2-v0", constraints=("each",), steps_per_epoch=40, total_steps=40, threads=1)
    trainer = Trainer(config)
    trainer.collector.pool.physics.qpos[1, 0] = np.nan
    epoch = trainer.run_epoch()
    assert epoch.episodes["faulted"].tolist() == [True]
    assert epoch.episodes["cost"].tolist() == [1]
    for name in trainer.constraints.names:
        assert (epoch.row[f"cost_{name}"], epoch.row[f"safety_{name}"]) == (1, 0)
    assert (epoch.row["safety_probability"], epoch.row["safe_reward"], epoch.row["faulted_episodes"]) == (0, 0, 1)


# ---- evaluation and reports ----------------------------------------------------------------------------------------


def test_an_evaluation_counts_crashes_as_unsafe_and_says_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", str(runs / "apart"), "--episodes", "30"]
    assert cli.main([*command, "--faulted", "unsafe", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["faults"] >= found["faulted_episodes"] > 0
    assert found["safety_probability"] == pytest.approx(1 - found["faulted_episodes"] / 30)
    assert found["cost"] == pytest.approx(found["faulted_episodes"] / 30)
    assert found["faulted"] == "unsafe"
    assert re.search(rf"WARNING: {found['faulted_episodes']} of 30 {CUT}", printed.err)
    assert cli.main(command) == 0  # as the run does
    printed = capsys.readouterr()
    ((_, apart),) = kept(runs / "apart")
    assert re.search(rf"episodes cut by a fault\s+{found['faulted_episodes']}\s+left out", printed.out)
    assert (apart["safety_probability"], apart["cost"], apart["length"]) == (1, 0, 40)
    assert (apart["faulted_episodes"], apart["faulted"]) == (found["faulted_episodes"], "apart")
    assert "WARNING" in printed.err


def test_a_quiet_command_tells_of_faults_in_lines_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--num-envs", "4", "--steps-per-epoch", "400", "--total-steps", "400", "--hidden", "8"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.main(["train", name_of("cliff"), *settings, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    printed = capsys.readouterr()
    assert not printed.out
    failure, *counts, of_epoch, of_run = (line for line in printed.err.splitlines() if line.startswith("sbtrpo: "))
    assert all(re.search(r"failed 1(00?) times so far", line) for line in counts)
    assert failure.startswith(f"sbtrpo: WARNING: a world of {name_of('cliff')} failed and begins anew: ")
    assert re.match(r"sbtrpo: WARNING: \d+ of \d+ episodes of epoch 1 \(.* %\) were cut by a fault: ", of_epoch)
    assert re.match(r"sbtrpo: WARNING: \d+ of \d+ episodes \(.* %\) were cut by a fault: ", of_run)


def test_nobody_learns_to_crash_where_a_crash_is_unsafe(runs: Path) -> None:
    """Seen: 18 of 30 episodes of the policy to which a crash was nothing, none of the other's."""
    careful, careless = (sbtrpo.evaluate(runs / name, episodes=30, faulted="unsafe") for name in ("unsafe", "apart"))
    assert careful.safety_probability > careless.safety_probability + 0.3


@pytest.mark.usefixtures("no_figures")
def test_tables_and_reports_tell_whose_episodes_were_cut(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = collect(runs).table
    for row in final(table).to_pylist():
        metrics = RunFolder.open(runs / row["faulted"]).metrics()
        assert row["faulted_episodes"] == metrics["faulted_episodes"].sum() > 0
        assert row["episodes"] == metrics["episodes"].sum()
    assert cli.main(["collect", str(runs), "--out", str(tmp_path / "results.parquet")]) == 0
    assert len(re.findall(f"sb-trpo on .*: WARNING: .* {CUT}", capsys.readouterr().out)) == 2
    assert cli.main(["report", str(tmp_path / "results.parquet"), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    for told in (capsys.readouterr().err, page):
        assert len(re.findall(r"WARNING: \d+ of \d+ episodes", told)) == 2
        assert "left out of all rates" in told


def test_a_healthy_run_is_not_warned_of(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    run = sbtrpo.train(small("ToyCorridor-v0"), tmp_path / "run", quiet=True)
    assert not [warning for warning in recwarn if "fault" in str(warning.message)]
    assert not RunFolder.open(run).metrics()["faulted_episodes"].any()
    assert not RunFolder.open(run).episodes()["faulted"].any()


# ---- too many faults -----------------------------------------------------------------------------------------------


def test_an_environment_that_fails_on_every_second_step_ends_the_run_with_its_checkpoints(tmp_path: Path) -> None:
    task, run = name_of("tired"), tmp_path / "run"
    config = small(task, num_envs=2, threads=1, steps_per_epoch=200, total_steps=200_000)
    with pytest.raises(EnvironmentFailure, match=r"more than a tenth of their steps, .*MemoryError: worn out; mend"):
        sbtrpo.train(config, run, quiet=True)
    assert sbtrpo.load_policy(run).act(np.zeros(2)).shape == (1,)
    assert RunFolder.open(run).metrics()["epoch"].tolist() == [1]
    with pytest.raises(EnvironmentFailure, match="worn out"):  # a new process is worn out after an epoch, too
        sbtrpo.resume(run, quiet=True)
    assert RunFolder.open(run).metrics()["epoch"].tolist() == [1, 2]


@pytest.mark.parametrize(("every", "ends"), [(1, True), (2, True), (9, True), (10, False), (100, False)])
def test_a_tenth_of_the_steps_is_borne(every: int, ends: bool) -> None:
    tolerance = Tolerance(worlds=20)

    def play() -> None:
        for t in range(5000):
            tolerance.step(20 * (t % every == 0), "as promised")

    if not ends:
        play()
        return
    with pytest.raises(EnvironmentFailure, match="as promised"):
        play()


def test_a_resumed_run_remembers_its_faults() -> None:
    config = small("ToyCorridor-v0")
    one, other = Trainer(config), Trainer(config)
    assert "fault_debt" not in one.collector.state_dict()
    one.collector._tolerance.step(4, "as promised")
    other.load_state_dict(one.state_dict())
    assert other.collector._tolerance.debt == one.collector._tolerance.debt > 3
