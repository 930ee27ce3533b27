from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.image import imread
from pyarrow.parquet import read_table
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sbtrpo.config import TrainConfig
from sbtrpo.config.file import read_config, write_config
from sbtrpo.config.run import RunSettings
from sbtrpo.errors import UserError
from sbtrpo.learning.display import Display
from sbtrpo.runs.claims import holder
from sbtrpo.runs.curves import trailing_mean
from sbtrpo.runs.folder import RunFolder, default_path

CONFIG = TrainConfig(
    task="SafetyCarCircle2-v0", seed=3, hidden=(32, 16, 8), target_kl=1e-06, kl_reduction="sum_over_dims"
)


def row(epoch: int) -> dict[str, Any]:
    rng = np.random.default_rng(epoch)
    reward, cost = rng.normal(), rng.exponential()
    return {
        "epoch": float(epoch),  # as a trainer whose numbers are all floats has it
        "steps": 1000 * epoch,
        "reward": reward,
        "cost": np.float32(cost),
        "safety_probability": 0.1 + 0.2,
        "safe_reward": math.nan if epoch == 1 else reward / 3,
        "mu": 1 / 3,
        "accepted_step": 1.0,
        "skipped_updates": np.int64(0),
        "faults": 0,
    }


def episodes(epoch: int) -> dict[str, np.ndarray[Any, Any]]:
    count = epoch % 4  # some epochs finish none
    rng = np.random.default_rng(epoch)
    floats = {name: rng.normal(size=count) for name in ("return", "cost", "cost_hazards")}
    whole = {name: rng.integers(0, 9, count) for name in ("world", "step", "length")}
    return {**whole, **floats, "goals": np.ones(count)}


TIMING = {"rollout_seconds": 3.0, "update_seconds": 1.0}


def log(run: RunFolder, first: int, last: int) -> None:
    for epoch in range(first, last + 1):
        run.log_epoch(row(epoch), episodes(epoch), TIMING)
        run.flush_episodes()


def test_a_config_comes_back_equal(tmp_path: Path) -> None:
    for config in (TrainConfig(), CONFIG, CONFIG.replace(bootstrap_raw_observation=False)):
        write_config(tmp_path / "config.toml", config)
        assert read_config(tmp_path / "config.toml") == config


def test_a_config_names_every_setting_and_may_be_edited(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    write_config(path, TrainConfig())
    text = path.read_text()
    for name in TrainConfig().settings():
        assert re.search(rf"^(# )?{name} (=|is not set)", text, re.MULTILINE), name
    path.write_text("beta = 1\nhidden = [8]\n")
    config = read_config(path)
    assert config == TrainConfig(beta=1.0, hidden=(8,))
    assert type(config.get("beta")) is float


def test_a_retired_setting_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("beta = 0.5\ndeterministic = false\n")
    assert read_config(tmp_path / "config.toml") == TrainConfig(beta=0.5)


def test_a_file_beside_a_listed_method_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('algo = "cpo"\n')
    (tmp_path / "method.py").write_text("raise SystemExit")
    assert RunFolder.open(tmp_path).config == TrainConfig(algo="cpo")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("betta = 0.5", "a setting that sbtrpo does not know: betta"),
        ("beta = ", "is not TOML"),
        ("beta = 2.0", "beta must be between 0"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ValueError, match=sentence) as caught:
        RunFolder.open(tmp_path)
    assert "config.toml" in str(caught.value)


def test_runs_with_other_settings_have_other_folders() -> None:
    paths = {default_path(config) for config in (CONFIG, TrainConfig(), CONFIG.replace(seed=4))}
    assert len(paths) == 3
    assert default_path(CONFIG, "x").as_posix() == f"x/SafetyCarCircle2-v0/sb-trpo/seed3-{CONFIG.digest()}"


def test_the_folder_of_another_run_is_not_written_into(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(FileExistsError, match="resume that run, or choose another --out"):
        RunFolder.create(tmp_path / "run", CONFIG)
    with pytest.raises(ValueError, match=r"other settings: beta \(0.75, now 0.5\)"):
        RunFolder.create(tmp_path / "run", CONFIG.replace(beta=0.5), resume=True)
    longer = CONFIG.replace(total_steps=2 * CONFIG.total_steps, threads=1)
    RunFolder.create(tmp_path / "run", longer, resume=True)
    assert RunFolder.open(tmp_path / "run").config == longer
    with pytest.raises(FileNotFoundError, match=r"holds no config\.toml"):
        RunFolder.open(tmp_path)


def test_metrics_are_written_exactly_and_hold_no_times(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, 3)
    run.close()
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == ",".join(row(1))
    assert lines[1].split(",")[5] == "nan"
    assert len(lines) == 4
    columns = run.metrics()
    for key in row(1):
        assert columns[key][2] == row(3)[key]
    assert not any("seconds" in key or "elapsed" in key for key in columns)
    timing = (tmp_path / "timing.csv").read_text().splitlines()
    assert timing[0] == "epoch,rollout_seconds,update_seconds,elapsed_seconds"
    assert len(timing) == 4


def test_rows_with_other_columns_are_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, 1)
    run.close()
    run = RunFolder.open(tmp_path)
    with pytest.raises(ValueError, match=r"differ in extra; every epoch has the same columns"):
        run.log_epoch({**row(2), "extra": 1.0})
    with pytest.raises(ValueError, match="needs its epoch"):
        run.log_epoch({"reward": 1.0})


def test_every_episode_is_a_row_of_the_folder_of_parquet_files(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, 6)
    run.close()
    table = read_table(tmp_path / "episodes.parquet")
    assert table["epoch"].to_pylist() == [1, 2, 2, 3, 3, 3, 5, 6, 6]
    for name, values in episodes(3).items():
        assert table[name].to_pylist()[3:6] == values.tolist()
    assert {str(table.schema.field(name).type) for name in ("epoch", "world", "step", "length", "goals")} == {"int64"}
    assert {str(table.schema.field(name).type) for name in ("return", "cost", "cost_hazards")} == {"double"}
    assert run.episodes()["epoch"].tolist() == table["epoch"].to_pylist()


@pytest.mark.parametrize("kept", [0, 1, 4, 6])
def test_a_rewound_run_continues_to_the_same_bytes_of_metrics_and_rows_of_episodes(tmp_path: Path, kept: int) -> None:
    whole = RunFolder.create(tmp_path / "whole", CONFIG)
    log(whole, 1, 9)
    whole.close()
    killed = RunFolder.create(tmp_path / "killed", CONFIG)
    log(killed, 1, 6)
    killed.log_epoch(row(7), episodes(7), TIMING)  # its episodes are not yet written
    killed.close()
    for name in ("metrics.csv", "timing.csv"):
        with (tmp_path / "killed" / name).open("a") as file:
            file.write("8,80")  # a line that a kill cut short
    resumed = RunFolder.open(tmp_path / "killed")
    resumed.rewind(kept)
    log(resumed, kept + 1, 9)
    resumed.close()
    ours, theirs = tmp_path / "killed", tmp_path / "whole"
    assert (ours / "metrics.csv").read_bytes() == (theirs / "metrics.csv").read_bytes()
    assert read_table(ours / "episodes.parquet").equals(read_table(theirs / "episodes.parquet"))
    assert len((tmp_path / "killed" / "timing.csv").read_text().splitlines()) == 10


@pytest.mark.parametrize("kept", [0, 3, 6])
def test_a_run_of_the_first_version_with_one_file_of_episodes_loads_and_goes_on(tmp_path: Path, kept: int) -> None:
    whole = RunFolder.create(tmp_path / "whole", CONFIG)
    log(whole, 1, 9)
    whole.close()
    old = RunFolder.create(tmp_path / "old", CONFIG)
    log(old, 1, 6)
    old.close()
    table = tmp_path / "old" / "episodes.parquet"
    rows = read_table(table)
    shutil.rmtree(table)
    pyarrow.parquet.write_table(rows, table)
    assert RunFolder.open(tmp_path / "old").episodes()["epoch"].tolist() == rows["epoch"].to_pylist()
    assert table.is_file()
    resumed = RunFolder.open(tmp_path / "old")
    resumed.rewind(kept)
    log(resumed, kept + 1, 9)
    resumed.finish({})
    assert table.is_dir()
    assert read_table(table).equals(read_table(tmp_path / "whole" / "episodes.parquet"))


def test_rewinding_to_an_epoch_that_was_never_logged_is_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, 2)
    run.close()
    with pytest.raises(ValueError, match="ends with epoch 2 but the run is to go on after epoch 5"):
        run.rewind(5)


def test_tensorboard_shows_a_resumed_run_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, 4)
    run.close()
    run = RunFolder.open(tmp_path)
    run.rewind(2)
    log(run, 3, 5)
    run.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/reward")] == [1000, 2000, 3000, 4000, 5000]
    assert events.Scalars("time/update_seconds")[0].value == 1.0


@pytest.mark.usefixtures("own_curves")
def test_finish_leaves_a_summary_and_curves(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    for epoch in range(1, 4):
        run.log_epoch(row(epoch), episodes(epoch), TIMING)
    run.finish({"reward": np.float64(1.5), "bound": math.nan, "interval": (0.1, 0.2)})
    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["reward"] == 1.5
    assert summary["bound"] is None
    assert summary["interval"] == [0.1, 0.2]
    named = ("sbtrpo", "torch", "mujoco", "python")
    assert all(re.match(r"\d+\.\d+", summary[f"{name}_version"]) for name in named)
    assert summary["host"]
    assert summary["platform"]
    assert summary["started"] <= summary["finished"]
    assert summary["duration_seconds"] >= 0
    assert read_table(tmp_path / "episodes.parquet").num_rows == 6
    picture = imread(tmp_path / "curves.png")
    assert picture.shape[:2] == (780, 1300)
    assert np.sum(np.any(picture[..., :3] < 0.95, axis=-1)) > 5000
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_resumed_run_keeps_its_start_and_adds_up_its_duration(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    origin = (tmp_path / "run.json").read_bytes()
    log(run, 1, 2)
    run.close()
    (tmp_path / "timing.csv").write_text("epoch,elapsed_seconds\n1,100.0\n2,200.0\n")
    run = RunFolder.open(tmp_path)
    run.rewind(1)
    run.finish({})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 100 <= summary["duration_seconds"] < 200
    assert (tmp_path / "run.json").read_bytes() == origin
    assert summary["started"] == json.loads(origin)["started"]


@pytest.mark.usefixtures("own_curves")
@pytest.mark.parametrize("epochs", [0, 1, 45])
def test_curves_can_be_drawn_of_any_number_of_epochs(tmp_path: Path, epochs: int) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    log(run, 1, epochs)
    run.close()
    assert imread(run.draw_curves()).shape == (780, 1300, 4)


def test_trailing_means_look_back_only() -> None:
    values = np.array([math.nan, 1.0, 3.0, 5.0])
    assert trailing_mean(values, window=2)[1:].tolist() == [1.0, 2.0, 4.0]
    assert math.isnan(trailing_mean(values, window=2)[0])


@pytest.mark.parametrize("window", [1, 5, 20, 100])
@pytest.mark.parametrize("epochs", [0, 1, 57])
def test_trailing_means_leave_out_what_was_not_measured_and_what_is_long_ago(window: int, epochs: int) -> None:
    rng = np.random.default_rng(1)
    values, steps = rng.normal(size=epochs), np.cumsum(rng.integers(1, 100_000, epochs)) * 1.0
    values[::7] = np.nan
    found = trailing_mean(values, steps, window)
    assert len(found) == epochs
    for k in range(epochs):
        recent = values[max(0, k + 1 - window) : k + 1][steps[max(0, k + 1 - window) : k + 1] > steps[k] - 400_000]
        finite = recent[np.isfinite(recent)]
        np.testing.assert_allclose(found[k], finite.mean() if len(finite) else np.nan, atol=1e-12)


def test_wandb_is_asked_for_in_a_sentence_when_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"pip install 'sbtrpo\[wandb\]'"):
        RunFolder.create(tmp_path / "run", CONFIG, wandb=True)
    assert not (tmp_path / "run").exists()
    RunFolder.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(ImportError, match=r"pip install 'sbtrpo\[wandb\]'"):
        RunFolder.open(tmp_path / "run", wandb=True)
    assert holder(tmp_path / "run") is None


def test_wandb_gets_every_epoch_and_the_same_run_when_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    logged: list[tuple[int, dict[str, float]]] = []
    session = SimpleNamespace(log=lambda numbers, step: logged.append((step, numbers)), finish=lambda: None)

    def init(**settings: Any) -> SimpleNamespace:
        begun.append(settings)
        return session

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    run = RunFolder.create(tmp_path, CONFIG, wandb=True)
    log(run, 1, 2)
    run.close()
    RunFolder.open(tmp_path, wandb=True).close()
    assert [step for step, _ in logged] == [1000, 2000]
    assert logged[1][1]["train/reward"] == row(2)["reward"]
    assert begun[0]["id"] == begun[1]["id"]
    assert begun[0]["config"]["beta"] == CONFIG.get("beta")


def test_wandb_ends_before_its_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(dir: str, **settings: Any) -> SimpleNamespace:
        events = Path(dir) / "wandb" / "events"
        events.parent.mkdir()
        events.write_text("begun")
        return SimpleNamespace(finish=lambda: events.write_text(f"{events.read_text()} and ended"))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    RunFolder.create(tmp_path / "run", CONFIG, wandb=True).undo()
    assert not (tmp_path / "run").exists()


def shown(terminal: bool = False, quiet: bool = False, first: int = 1) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    settings = RunSettings(steps_per_epoch=1000, total_steps=4000)
    with Display(settings, "a [run]", quiet=quiet, console=console) as display:
        for epoch in range(first, 5):
            display.update(row(epoch), TIMING)
        display.say("the end")
    return out.getvalue()


def test_a_pipe_gets_one_line_an_epoch() -> None:
    lines = shown().splitlines()
    assert len(lines) == 6
    assert (lines[0], lines[-1]) == ("a [run]", "the end")
    results = f"reward {row(1)['reward']:.2f}  cost {row(1)['cost']:.2f}  safety probability 0.30  safe reward -  mu"
    assert lines[1].startswith(f"epoch 1/4  steps 1000  {results}")
    assert "mu 0.333  accepted step 1.000  skipped updates 0  faults 0" in lines[4]
    assert lines[4].endswith("333 steps/s rollout, 250 overall  25% updating")


def test_quiet_shows_nothing() -> None:
    assert shown(quiet=True) == ""
    assert shown(quiet=True, terminal=True) == ""


@pytest.mark.parametrize("first", [1, 3])
def test_a_terminal_gets_a_bar_and_a_table(first: int) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(terminal=True, first=first))
    end = text[text.rindex("training") :]
    assert "epoch 4/4" in end
    assert "4,000 steps" in end
    for words in ("reward", "safety probability", "0.30", "accepted step", "steps/s rollout", "333", "25%"):
        assert words in end
    assert "the end" in text


def test_logged_rows_are_on_the_disk_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    synced: list[bytes] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append((tmp_path / "metrics.csv").read_bytes() if (tmp_path / "metrics.csv").exists() else b"")

    monkeypatch.setattr(os, "fsync", fsync)
    run.log_epoch(row(1))
    run.close()
    assert synced[-1] == (tmp_path / "metrics.csv").read_bytes() != b""


@pytest.mark.parametrize("row", ["epoch,reward\n", "one,2\n", "1\n"])
def test_a_damaged_table_is_named_with_what_to_do(tmp_path: Path, row: str) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG)
    log(run, 1, 2)
    run.close()
    with (tmp_path / "run" / "metrics.csv").open("a") as file:
        file.write(row)
    with pytest.raises(UserError, match=r"metrics\.csv is damaged: .* mend or delete that row"):
        RunFolder.open(tmp_path / "run").metrics()
