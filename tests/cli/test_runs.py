"""Runs on the command line: their settings from files, and their length."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.command import benchmark
from sbtrpo.cli.app import main
from sbtrpo.learning import training
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.provenance import provenance

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=400, hidden=(8,))
PLAN = """
tasks = ["ToyCorridor-v0", "SafetyPointGoal2-v0"]
num_seeds = 3
total_steps = 400_000

[[group]]
algo = ["cpo", "ppo_lag"]
cost_limit = 3

[[group]]
algo = "sb-trpo"
beta = [0.6, 0.9]
"""


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The runs that `train` would train; none is."""
    runs: list[TrainConfig] = []

    class Done:
        is_finished = True

    monkeypatch.setattr(training, "train", lambda config, *_: runs.append(config) or Path())
    monkeypatch.setattr(RunFolder, "open", lambda *_: Done)
    return runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = TOY.replace(beta=0.9, cg_damping=0.05, seed=4, keep_last=3)
    return sbtrpo.train(config, tmp_path_factory.mktemp("config") / "run", quiet=True)


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "plan.toml").write_text(PLAN)
    return str(tmp_path / "plan.toml")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the code which runs, whichever one is installed."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "of another place")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sbtrpo {sbtrpo.__version__}\n"
    assert provenance()["sbtrpo_version"] == sbtrpo.__version__
    assert provenance()["torch_version"] == torch.__version__


def test_a_task_may_stand_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", "ToyCorridor-v0", "--worlds", "2", "--out", str(tmp_path / "look.png")]) == 0
    assert "ToyCorridor-v0: a random policy in 2 worlds" in capsys.readouterr().out


# ---- settings from a file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True], ids=["its file", "its folder"])
def test_a_run_is_repeated_from_its_settings(whole: bool, run: Path, trained: list[TrainConfig]) -> None:
    assert main(["train", "--config", str(run if whole else run / "config.toml")]) == 0
    assert trained[0].settings() == TrainConfig(**{**TOY.given, "beta": 0.9, "cg_damping": 0.05, "seed": 4}).replace(
        keep_last=3
    ).settings()  # fmt: skip


def test_flags_come_before_the_file(run: Path, trained: list[TrainConfig]) -> None:
    """Also those that name the usual value."""
    assert main(["train", "--config", str(run), "--beta", "0.75", "--seed", "0", "--num-seeds", "2"]) == 0
    assert [(config.seed, config.get("beta"), config.get("cg_damping")) for config in trained] == [
        (0, 0.75, 0.05),
        (1000, 0.75, 0.05),
    ]


def test_another_method_keeps_what_was_chosen_and_has_defaults_of_its_own(
    run: Path, trained: list[TrainConfig]
) -> None:
    assert main(["train", "SafetyPointGoal2-v0", "--config", str(run), "--algo", "cpo"]) == 0
    chosen = {**TOY.given, "task": "SafetyPointGoal2-v0", "cg_damping": 0.05, "seed": 4, "keep_last": 3}
    assert trained[0].settings() == TrainConfig(**chosen, algo="cpo").settings()


def test_ones_own_settings_leave_the_rest_to_the_method_also_in_a_file_called_config(
    tmp_path: Path, trained: list[TrainConfig]
) -> None:
    (tmp_path / "config.toml").write_text('algo = "sb-trpo_growing"\n')
    assert main(["train", "--config", str(tmp_path / "config.toml")]) == 0
    assert trained[0].settings() == TrainConfig(algo="sb-trpo_growing").settings()


def test_a_method_in_a_file_is_the_one_that_the_run_had(tmp_path: Path, trained: list[TrainConfig]) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    (tmp_path / "mine.py").write_bytes(example.read_bytes())
    folder = RunFolder.create(tmp_path / "run", TOY.replace(algo=f"{tmp_path / 'mine.py'}:WaryTRPO"))
    folder.close()
    expected = folder.config.in_effect()
    (tmp_path / "mine.py").unlink()
    assert main(["train", "--config", str(tmp_path / "run" / "config.toml")]) == 0
    assert trained[0].in_effect() == expected


def test_a_plan_gives_the_run_that_the_flags_leave(plan: str, trained: list[TrainConfig]) -> None:
    assert main(["train", "ToyCorridor-v0", "--config", plan, "--algo", "sb-trpo", "--beta", "0.65"]) == 0
    assert main(["train", "ToyCorridor-v0", "--config", plan, "--algo", "ppo_lag", "--seed", "7"]) == 0
    first, second = trained
    assert (first.algo, first.get("beta"), first.total_steps, first.seed) == ("sb-trpo", 0.65, 400_000, 0)
    assert (second.algo, second.get("cost_limit"), second.seed) == ("ppo_lag", 3.0, 7)


PAIRED = """
task = "ToyCorridor-v0"
seeds = [0, 1000]

[[group]]
advantage = "mc"
beta = 0.6
halves_every = 5

[[group]]
advantage = "gae"
beta = 0.9
gae_lambda = 0.9
hidden = [32, 32]

[[group]]
algo = "cpo"
cost_limit = 3
seeds = [7]

[[group]]
task = "my:Env"
env_kwargs = { level = 2, map = "maze" }
algo = "ppo_lag"
clip = 0.1
"""


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--advantage", "gae", "--task", "ToyCorridor-v0", "--algo", "sb-trpo"], {"gae_lambda": 0.9, "beta": 0.9}),
        (["--beta=0.60"], {"advantage": "mc", "halves_every": 5}),
        (["--beta", "0.6", "--halves-every", "2"], {"advantage": "mc", "halves_every": 2}),
        (["--hidden", "32", "32", "--gae_lambda", "0.8"], {"beta": 0.9, "gae_lambda": 0.8, "hidden": (32, 32)}),
        (["--beta", "0.9", "--seed", "1000"], {"seed": 1000, "gae_lambda": 0.9}),
        (["--seed", "7", "--num-seeds", "2"], {"algo": "cpo", "cost_limit": 3.0, "seed": 7}),
        (["--cost-limit", "3", "--num-envs", "7", "--steps-per-epoch", "70"], {"algo": "cpo", "num_envs": 7}),
        (["--env-kwargs", "level=2"], {"algo": "ppo_lag", "clip": 0.1, "task": "my:Env?level=2&map=maze"}),
        (["--task", "my:Env", "--env-kwargs", "map=maze", "level=2"], {"algo": "ppo_lag", "clip": 0.1}),
        (["--task", "my:Other", "--clip", "0.1", "--env-kwargs", "level=2"], {"task": "my:Other?level=2"}),
    ],
)
def test_a_flag_picks_the_run_that_has_its_value_with_all_that_belongs_to_it(
    flags: list[str], expected: dict[str, Any], tmp_path: Path, trained: list[TrainConfig]
) -> None:
    (tmp_path / "paired.toml").write_text(PAIRED)
    assert main(["train", "--config", str(tmp_path / "paired.toml"), *flags]) == 0
    assert {name: trained[0].get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--algo", "sb-trpo", "--beta", "0.6", "--advantage", "gae"], "differ in gae_lambda, hidden"),
        (["--algo", "sb-trpo"], "differ in advantage, beta, hidden; name one of each, as in --advantage"),
        (["--beta", "2"], "beta must be between 0 (reward only) and 1 (cost only), got 2.0"),
        (["--algo", "cpo", "--beta", "0.6"], "cpo has no setting beta"),
    ],
)
def test_flags_that_leave_several_runs_or_none_are_told(
    flags: list[str], sentence: str, tmp_path: Path, trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paired.toml").write_text(PAIRED)
    assert main(["train", "--config", str(tmp_path / "paired.toml"), *flags]) == 2
    assert sentence in capsys.readouterr().err
    assert not trained


def test_a_word_that_is_no_value_of_a_setting_is_told_with_a_plan_too(
    plan: str, trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--config", plan, "--beta", "much"])
    error = capsys.readouterr().err
    assert "Error parsing --beta" in error
    assert error.count("Value error") == 1
    assert not trained


def test_help_needs_no_choice_of_a_plans_run(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--config", plan, "--help"])
    assert "--cg-tolerance" in capsys.readouterr().out


def test_a_name_that_is_no_plan_is_told_as_a_benchmark_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    errors = []
    for command in (["train", "--config", "mian"], ["benchmark", "mian"]):
        assert main(command) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert errors[0].startswith("sbtrpo: there is no plan mian; ")


def test_a_plan_of_this_package_is_taken_by_its_name(trained: list[TrainConfig]) -> None:
    flags = ["--task", "SafetyCarGoal2-v0", "--algo", "cpo", "--total-steps", "60000"]
    assert main(["train", "--config", "main", *flags]) == 0
    (config,) = trained
    assert (config.task, config.algo, config.num_envs, config.total_steps) == ("SafetyCarGoal2-v0", "cpo", 20, 60_000)


@pytest.mark.parametrize(
    ("flags", "differing"),
    [([], "task, algo, beta"), (["--algo", "sb-trpo", "--task", "ToyCorridor-v0"], "beta")],
)
def test_a_plan_of_several_runs_is_refused(
    flags: list[str], differing: str, plan: str, trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--config", plan, *flags]) == 2
    assert f"the plan plan has runs that differ in {differing}; name one of each" in capsys.readouterr().err
    assert not trained


@pytest.mark.parametrize(
    ("content", "flags", "expected"),
    [
        ("task = 'my:Env'\nenv_kwargs = { level = 2, map = 'maze' }", [], "my:Env?level=2&map=maze"),
        (
            "task = 'my:Env'\n[env_kwargs]\nlevel = 2",
            ["--env-kwargs", "level=3", "map=maze"],
            "my:Env?level=3&map=maze",
        ),
        ("task = 'my:Env?level=1'", ["--env-kwargs", "level=2"], "my:Env?level=2"),
        ("beta = 0.6", ["--task", "my:Env", "--env-kwargs", "level=2"], "my:Env?level=2"),
        ("tasks = ['my:Env']\nenv_kwargs = { level = [1, 2] }", ["--env-kwargs", "level=2"], "my:Env?level=2"),
        (
            "tasks = ['my:Env', 'my:Other']\nenv_kwargs = ['level=1']",
            ["--task", "my:Other?level=1"],
            "my:Other?level=1",
        ),
    ],
)
def test_keyword_arguments_of_an_environment_come_from_files_and_flags(
    content: str, flags: list[str], expected: str, tmp_path: Path, trained: list[TrainConfig]
) -> None:
    (tmp_path / "mine.toml").write_text(content)
    assert main(["train", "--config", str(tmp_path / "mine.toml"), *flags]) == 0
    assert [config.task for config in trained] == [expected]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("task = 'my:Env'\nenv_kwargs = 3\n", "name=value"),
        ("env_kwargs = { level = 2 }\n", "environment of your own"),
        ("tasks = ['my:Env']\nenv_kwargs = 3\n", "name=value"),
        ("tasks = ['my:Env']\nenv_kwargs = { level = [] }\n", "env_kwargs is an empty list"),
        ("beta = 2\n", "beta must be"),
        ("bata = 0.5\n", "has a setting that sbtrpo does not know: bata"),
        ("beta = \n", "is not TOML"),
        (None, "give the path of a TOML file, or one of advantage, annealed, batches, "),
    ],
)
def test_a_file_that_cannot_be_meant_is_one_line(
    content: str | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    assert main(["train", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert str(path) in error
    assert error.count("\n") == 1


# ---- the length of a run -------------------------------------------------------------------------------------------


def test_a_finished_run_says_so_and_goes_on_when_it_is_made_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sbtrpo.train(TOY.replace(total_steps=800), tmp_path / "whole", quiet=True)
    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    assert main(["resume", str(run)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{run} is finished: all its 2 epochs, 400 steps, are done" in told
    assert f"to go on, sbtrpo resume {run} --total-steps 800" in told
    assert main(["resume", str(run), "--total-steps", "800"]) == 0
    assert "the run now has 4 epochs in place of 2" in capsys.readouterr().out
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["epochs"], summary["lengths"]) == (4, [{"total_steps": 400, "until_epoch": 2}])
    assert RunFolder.open(run).config.total_steps == 800


def test_a_length_that_was_written_by_hand_is_replaced(tmp_path: Path) -> None:
    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("total_steps = 400", " total_steps=400"))
    assert main(["resume", str(run), "--total-steps", "800", "--quiet"]) == 0
    assert config.read_text().count("total_steps") == 1
    assert RunFolder.open(run).config.total_steps == 800


def test_what_falls_over_a_run_is_told_from_and_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TOY.replace(algo="c3po", learning_rate=4e-4, penalty=50.0, policy_passes=1)
    run = sbtrpo.train(config, tmp_path / "run", quiet=True)
    assert main(["resume", str(run), "--total-steps", "800"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "learning_rate goes on at 0.0002, where it was 0; penalty goes on at 27.5, where it was 50" in told
    metrics = RunFolder.open(run).metrics()
    assert metrics["penalty"].tolist() == pytest.approx([5.0, 27.5, 27.5, 38.75])


def test_steps_that_have_grown_short_are_long_again_in_a_longer_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sbtrpo.train(TOY.replace(algo="sb-trpo_annealed", step_decay_from=0.0), tmp_path / "run", quiet=True)
    assert main(["resume", str(run), "--total-steps", "800"]) == 0
    assert "target_kl goes on at 0.0025, where it was 0" in " ".join(capsys.readouterr().out.split())
    assert RunFolder.open(run).metrics()["radius"].tolist() == pytest.approx([0.01, 0.0025, 0.0025, 0.000625])


def test_a_bias_that_has_moved_goes_back_in_a_longer_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sbtrpo.train(TOY.replace(beta=0.5, beta_end=0.9), tmp_path / "run", quiet=True)
    assert main(["resume", str(run), "--total-steps", "800"]) == 0
    assert "beta goes on at 0.7, where it was 0.9" in " ".join(capsys.readouterr().out.split())
    metrics = RunFolder.open(run).metrics()
    assert metrics["beta"].tolist() == pytest.approx([0.5, 0.7, 0.7, 0.8])
    assert "radius" not in metrics


def test_a_longer_run_sums_costs_again_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sbtrpo.train(TOY.replace(algo="sb-trpo_late_hits"), tmp_path / "run", quiet=True)
    assert main(["resume", str(run), "--total-steps", "800"]) == 0
    assert "in place of 2; costs are summed again, until" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", str(run), "--total-steps", "1000"]) == 0  # 0.8 of it are over
    assert "summed again" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("steps", ["400", "200", "500"])
def test_a_run_is_not_made_shorter_than_it_is(steps: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "config.toml").read_bytes()
    assert main(["resume", str(run), "--total-steps", steps]) == 2
    assert f"{run} has 400 steps already; name at least 600 with --total-steps" in capsys.readouterr().err
    assert (run / "config.toml").read_bytes() == before


def test_a_run_that_cannot_go_on_keeps_its_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("beta = 0.75", "beta = 0.5"))
    before = {file: (run / file).read_bytes() for file in ("config.toml", "run.json", "summary.json", "metrics.csv")}
    assert main(["resume", str(run), "--total-steps", "800"]) == 2
    assert "was edited since the run's checkpoint: beta" in capsys.readouterr().err
    assert {file: (run / file).read_bytes() for file in before} == before


def test_a_longer_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Not from the rows that came after it."""
    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    shutil.rmtree(run / "checkpoints" / "epoch-000002")
    assert main(["resume", str(run), "--total-steps", "800", "--quiet"]) == 0
    assert RunFolder.open(run).lengths == [{"total_steps": 400, "until_epoch": 1}]
    assert RunFolder.open(run).metrics()["epoch"].tolist() == [1, 2, 3, 4]


# ---- dry runs ------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_variants_apart(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    flags = ["--tasks", "ToyCorridor-v0", "--num-seeds", "1", "--advantage", "mc", "gae"]
    assert main(["benchmark", plan, *flags, "--out", str(tmp_path), "--dry-run"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "seed0" in line]
    shown = {(row[0].split("/")[1], " ".join(row[1:-1])) for row in rows}
    advantages = ("mc", "gae")
    assert shown == {
        *((algo, f"advantage {kind}") for algo in ("cpo", "ppo_lag") for kind in advantages),
        *(("sb-trpo", f"beta {beta}, advantage {kind}") for kind in advantages for beta in (0.6, 0.9)),
    }


def test_a_dry_run_of_runs_that_differ_in_seed_alone_has_no_such_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark(settings={"tasks": ["ToyCorridor-v0"], "num_seeds": 2}, out=tmp_path, dry_run=True) == 0
    assert "settings" not in capsys.readouterr().out
