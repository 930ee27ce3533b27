"""The command line has the settings of the run and of its method, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sbtrpo.cli import app as cli
from sbtrpo.cli.settings import words_after
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.train import all_settings
from sbtrpo.learning import training
from sbtrpo.runs.folder import RunFolder

OF_THE_COMMAND = {"config", "help", "env-kwargs", "num-seeds", "out", "quiet", "no-quiet", "wandb", "no-wandb"}
HAVE_BETA = (
    "sb-trpo, sb-trpo_rcritic, sb-trpo_critic, sb-trpo_annealed, sb-trpo_paced, sb-trpo_growing,"
    " sb-trpo_hits, sb-trpo_late_hits and sb-trpo_polished have it"
)


def flags_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The flags that `--help` lists."""
    with pytest.raises(SystemExit) as end:
        cli.main([*command, "--help"])
    assert end.value.code == 0
    lines = re.findall(r"^\W? *(-.*)", capsys.readouterr().out, re.MULTILINE)
    return {flag for line in lines for flag in re.findall(r"--([a-z][a-z0-9-]+)", line.split("  ")[0])}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """What would be trained."""
    configs: list[TrainConfig] = []

    def note(config: TrainConfig, *_: Any) -> Path:
        configs.append(config)
        run = tmp_path / str(len(configs))
        RunFolder.create(run, config).close()
        (run / "metrics.csv").write_text(f"epoch\n{config.epochs}\n")
        return run

    monkeypatch.setattr(training, "train", note)
    return configs


@pytest.mark.parametrize("algo", ["cpo", "ppo_lag", "sb-trpo", "PCRPO"])
def test_help_lists_the_settings_of_the_run_and_of_its_method_and_no_others(
    algo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    flags = flags_of(["train", "--algo", algo], capsys)
    names = {name.replace("_", "-") for name in all_settings(catalogue.method(algo))}
    assert flags == names | OF_THE_COMMAND
    first_order = algo == "ppo_lag"
    assert ("clip" in flags, "cg-damping" in flags) == (first_order, not first_order)
    assert ("beta" in flags) is (algo == "sb-trpo")


def test_help_has_the_defaults_of_the_method_on_the_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    defaults = []
    for task in ("SafetyHopperVelocity-v1", "SafetyPointGoal2-v0"):
        with pytest.raises(SystemExit):
            cli.main(["train", task, "--algo", "c_trpo", "--fidelity", "corrected", "--help"])
        text = capsys.readouterr().out
        defaults += re.findall(r"--critic-batch.*\(default: (\d+)\)", text)
        assert re.search(r"--cg-epsilon.*\(default: 0\.0\)", text)
    assert defaults == ["128", "256"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--algo", "cpo", "--beta", "0.5"], f"cpo has no setting beta; {HAVE_BETA}"),
        (["--algo=cpo", "--beta=0.5"], f"cpo has no setting beta; {HAVE_BETA}"),
        (["--beta", "0.5", "--algo", "p3o"], f"p3o has no setting beta; {HAVE_BETA}"),
        (["--sigma", "1"], "sb-trpo has no setting sigma; appo has it"),
        (["--algo", "cpo", "--cost-limit", "-1"], "cost_limit must be >= 0, got -1.0; use 0 for a hard constraint"),
        (["--checkpoint-every", "0"], "checkpoint_every must be at least 1, got 0"),
        (["--epoch-growth", "1.5"], "epoch_growth must be between 0 and 1, got 1.5"),
        (["--critic-l2", "nan"], "critic_l2 must be a number, got nan"),
        (["--hidden"], "hidden must name at least one layer, got ()"),
    ],
)
def test_what_a_setting_cannot_be_is_one_line(
    flags: list[str], sentence: str, trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "ToyCorridor-v0", *flags]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"sbtrpo: {sentence}\n")
    assert not trained


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--fidelity", "corrected"], {"kl_reduction": "sum_over_dims", "first_cost_zero": False}),
        (["--fidelity", "corrected", "--kl-reduction", "mean_over_dims"], {"kl_reduction": "mean_over_dims"}),
        (["--kl-reduction", "mean_over_dims", "--fidelity=corrected"], {"kl_reduction": "mean_over_dims"}),
        (["--fidelity", "corrected", "--first-cost-zero", "True"], {"first_cost_zero": True, "cg_epsilon": 0.0}),
        (["--first-cost-zero", "False"], {"first_cost_zero": False, "cpo_as_published": True}),
        (["--cost-limit", "5", "10"], {"cost_limit": (5.0, 10.0)}),
        (["--constraints", "hazards", "vases"], {"constraints": ("hazards", "vases")}),
    ],
)
def test_explicit_values_win_over_fidelity(
    flags: list[str], expected: dict[str, Any], trained: list[TrainConfig]
) -> None:
    assert cli.main(["train", "ToyCorridor-v0", "--algo", "cpo", *flags]) == 0
    (config,) = trained
    assert (config.task, config.algo) == ("ToyCorridor-v0", "cpo")
    assert {name: config.get(name) for name in expected} == expected


def test_seeds_beside_the_first_differ_in_nothing_else(trained: list[TrainConfig]) -> None:
    assert cli.main(["train", "ToyCorridor-v0", "--beta", "0.6", "--seed", "5", "--num-seeds", "3", "--quiet"]) == 0
    assert [config.seed for config in trained] == [5, 1005, 2005]
    assert len({config.digest() for config in trained}) == 1
    assert trained[2].given == {"task": "ToyCorridor-v0", "beta": 0.6, "seed": 2005}


def test_a_benchmark_takes_the_settings_of_all_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    flags = flags_of(["benchmark"], capsys)
    assert {"beta", "clip", "cg-damping", "sigma", "tasks", "num-seeds", "seeds", "constraints"} <= flags
    assert not {"task", "seed"} & flags
    grid = ["--tasks", "ToyCorridor-v0", "--algo", "cpo", "sb-trpo", "--beta", "0.6", "0.9", "--cost-limit", "0", "15"]
    assert cli.main(["benchmark", *grid, "--out", str(tmp_path), "--dry-run"]) == 0
    runs = re.findall(r"ToyCorridor-v0/([a-z-]+)/", capsys.readouterr().out)
    assert runs == ["cpo", "cpo", "sb-trpo", "sb-trpo"]
    assert cli.main(["benchmark", *grid, "--clip", "0.1", "--out", str(tmp_path), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("sbtrpo: no algorithm of this plan has a setting clip, as ppo_lag")


def test_words_end_where_the_next_flag_begins() -> None:
    assert words_after(["--algo", "cpo", "--seed", "3", "--algo"], "--algo") == ["cpo"]
    assert words_after(["benchmark", "plan.toml", "--steps_per_epoch", "5"], "--steps-per-epoch") == ["5"]


def test_an_interrupted_run_ends_the_command_and_its_further_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def stopped(config: TrainConfig, folder: Path, *_: object) -> Path:
        seeds.append(config.seed)
        RunFolder.create(folder, config).close()
        return folder

    monkeypatch.setattr("sbtrpo.learning.training.train", stopped)
    assert cli.main(["train", "ToyCorridor-v0", "--num-seeds", "3", "--out", str(tmp_path), "--quiet"]) == 130
    assert seeds == [0]
