"""Runs whose epochs grow: every method learns from longer ones, and all that counts epochs or steps is right."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark import schedule
from sbtrpo.benchmark.collect import collect
from sbtrpo.benchmark.pack import SharedPool, pack_key, train_pack
from sbtrpo.benchmark.schedule import Scheduler
from sbtrpo.benchmark.states import Progress
from sbtrpo.config import catalogue
from sbtrpo.config.toml import read_toml
from sbtrpo.errors import UserError
from sbtrpo.learning.display import Display
from sbtrpo.learning.trainer import Trainer
from sbtrpo.report import tables
from sbtrpo.report.runs import read_runs
from sbtrpo.runs import checkpoint
from sbtrpo.runs.card import export_policy
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.policy_file import stored_policy
from tests.benchmark.folders import FakeLauncher
from tests.settings import config_of

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [1, 1, 1, 1, 2, 3, 4]
"""Of the epochs below, where episodes have 50 steps, as a world's single epoch has."""
ENDS = [200, 400, 600, 800, 1200, 1800, 2600]


def growing(algo: str = "sb-trpo", **settings: Any) -> TrainConfig:
    """Four worlds, epochs of one episode in each at first, seven epochs in all."""
    small: dict[str, Any] = {"hidden": (8, 8), "threads": 1, "policy_passes": 3, "critic_passes": 2, "cost_limit": 5.0}
    shape = {"seed": 3, "num_envs": 4, "steps_per_epoch": 200, "epoch_growth": 0.5, "total_steps": 2600}
    return config_of(algo, **{"task": "ToyCorridor-v0"} | shape | small | settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(growing(keep_every=1), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def steps_of(run: Path) -> list[float]:
    return RunFolder.open(run).metrics()["steps"].tolist()


def metrics(run: Path) -> bytes:
    return (run / "metrics.csv").read_bytes()


# ---- epochs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", catalogue.BUILT_IN)
def test_every_method_learns_from_epochs_of_any_length_and_resumes_among_them(algo: str, tmp_path: Path) -> None:
    config = growing(algo)
    trainer = Trainer(config)
    rows = [trainer.run_epoch().row for _ in range(5)]
    checkpoint.save(tmp_path / "state", trainer.state_dict())
    restored = Trainer(config)
    restored.load_state_dict(checkpoint.load(tmp_path / "state"))
    for _ in range(2):
        rows.append(trainer.run_epoch().row)
        assert repr(rows[-1]) == repr(restored.run_epoch().row)
    assert [row["steps"] for row in rows] == ENDS
    assert [row["episodes"] for row in rows] == [4 * length for length in LENGTHS]
    assert not any(row["skipped"] for row in rows)


@pytest.mark.parametrize("algo", ["c_trpo", "ppo"])
def test_a_number_of_minibatches_divides_longer_epochs_too(algo: str) -> None:
    trainer = Trainer(growing(algo, critic_minibatches=3, policy_minibatches=3, epoch_growth=1.0))
    assert [trainer.run_epoch().row["skipped"] for _ in range(4)] == [0.0] * 4


def test_an_epochs_statistic_is_that_of_all_its_episodes() -> None:
    trainer = Trainer(growing(epoch_growth=1.0, num_envs=10, steps_per_epoch=500, total_steps=8000))
    *_, last = (trainer.run_epoch() for _ in range(5))  # of 80 episodes, more than a window has
    assert last.row["episodes"] == len(last.episodes["return"]) == 80
    for name, of_an_episode in (("reward", "return"), ("cost", "cost")):
        assert last.row[name] == pytest.approx(last.episodes[of_an_episode].mean())


def test_what_follows_the_run_follows_its_steps() -> None:
    trainer = Trainer(growing("ppo"))
    rates = [trainer.run_epoch().row["learning_rate"] for _ in ENDS]
    assert rates == pytest.approx([3e-4 * (1 - begun / 2600) for begun in [0, *ENDS[:-1]]])


def test_speeds_are_those_of_the_steps_that_were_made() -> None:
    trainer = Trainer(growing(epoch_growth=1.0))
    for steps in (200, 200, 400):
        timing = trainer.run_epoch().timing
        assert timing["rollout_steps_per_second"] * timing["rollout_seconds"] == pytest.approx(steps)


# ---- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_has_its_epochs_and_is_made_longer_as_if_it_had_been_so_long(run: Path, tmp_path: Path) -> None:
    assert steps_of(run) == ENDS
    short = sbtrpo.train(growing(total_steps=1300), tmp_path / "short", quiet=True)
    assert steps_of(short) == ENDS[:5]
    with pytest.raises(UserError, match="has 1,200 steps already; name at least 1800 with --total-steps"):
        sbtrpo.resume(short, quiet=True, total_steps=1799)
    sbtrpo.resume(short, quiet=True, total_steps=2600)
    assert metrics(short) == metrics(run)


def test_a_run_stopped_among_long_epochs_resumes_to_the_same_metrics(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(trainer: Trainer) -> None:
        if trainer.epoch == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "check", stop)
    with pytest.raises(KeyboardInterrupt):
        sbtrpo.train(growing(), tmp_path / "stopped", quiet=True)
    monkeypatch.undo()
    sbtrpo.resume(tmp_path / "stopped", quiet=True)
    assert metrics(tmp_path / "stopped") == metrics(run)


def test_another_growth_is_not_resumed(run: Path, tmp_path: Path) -> None:
    edited = sbtrpo.train(growing(total_steps=800), tmp_path / "edited", quiet=True)
    config = edited / "config.toml"
    config.write_text(config.read_text().replace("epoch_growth = 0.5", "epoch_growth = 0.25"))
    with pytest.raises(UserError, match=r"was edited since the run's checkpoint: epoch_growth \(0.5, now 0.25\)"):
        sbtrpo.resume(edited, quiet=True, total_steps=2600)


def test_a_pack_gives_the_numbers_of_separate_runs(run: Path, tmp_path: Path) -> None:
    other = growing("cpo", seed=4)
    alone = [run, sbtrpo.train(other, tmp_path / "alone", quiet=True)]
    packed = [tmp_path / "pack0", tmp_path / "pack1"]
    for path, config in zip(packed, (growing(), other), strict=True):
        RunFolder.create(path, config).close()
    assert train_pack(packed) == []
    assert [metrics(path) for path in packed] == [metrics(path) for path in alone]


def test_only_learners_whose_epochs_grow_alike_share_a_pool() -> None:
    configs = growing(), growing(epoch_growth=0.25)
    assert pack_key(configs[0]) != pack_key(configs[1])
    with pytest.raises(ValueError, match="share a pool only on one task"):
        SharedPool([Trainer(config) for config in configs])


# ---- what is made of them ------------------------------------------------------------------------------------------


def test_a_policy_knows_its_steps(run: Path, tmp_path: Path) -> None:
    assert [stored_policy(run, epoch).steps for epoch in range(1, 8)] == ENDS
    file, card = export_policy(run, tmp_path / "policy", which=6, episodes=2)
    assert stored_policy(file).steps == read_toml(card)["steps"] == 1800
    assert "--epoch-growth 0.5" in read_toml(card)["commands"]["train"]


def test_a_policy_of_epochs_that_are_alike_is_the_file_that_it_was(tmp_path: Path) -> None:
    alike = sbtrpo.train(growing(epoch_growth=0, total_steps=400), tmp_path / "run", quiet=True)
    assert "epoch_growth" not in stored_policy(alike).settings
    assert stored_policy(alike).steps == 400


def test_tables_and_curves_go_by_steps(run: Path) -> None:
    table = collect(run.parent).table
    assert table["steps"].to_pylist() == ENDS
    assert set(table["epochs"].to_pylist()) == {7}
    assert set(table["complete"].to_pylist()) == {True}
    runs = read_runs(table)
    curve = runs.curve("ToyCorridor-v0", runs.variants[0], "reward")
    assert curve is not None
    np.testing.assert_array_equal(curve.steps, ENDS)
    cells = {row[0].text: row[1].text for row in tables.hyperparameters(runs).rows}
    assert cells["Timesteps per Epoch"].startswith("at least 200 ")


@pytest.mark.parametrize("first", [1, 6])
def test_the_bar_goes_by_steps_and_speeds_by_those_of_the_epoch(first: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with Display(growing(), "a run", console=console) as display:
        for epoch in range(first, 7):
            display.update({"epoch": epoch, "steps": ENDS[epoch - 1]}, {"rollout_seconds": 2.0, "update_seconds": 1.0})
        (bar,) = display._progress.tasks
        assert (bar.completed, bar.total) == (1800, 2600)
    assert "300" in out.getvalue()[out.getvalue().rindex("steps/s rollout") :].split("\n")[0]


def test_the_time_left_goes_by_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler([growing()], tmp_path, FakeLauncher(lambda job: 0))
    scheduler.runs[0].progress, scheduler.runs[0].status, scheduler._begun = Progress(5), "running", 0.0
    monkeypatch.setattr(schedule.time, "monotonic", lambda: 12.0)
    assert scheduler._seconds_left() == pytest.approx(14.0)
