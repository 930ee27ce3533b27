"""Methods by name, by module, by file and by entry point; what is none is told in a sentence."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbtrpo import TrainConfig, train
from sbtrpo.benchmark.collect import collect
from sbtrpo.benchmark.plan import Plan
from sbtrpo.cli import app, main, runs
from sbtrpo.config import catalogue
from sbtrpo.config.catalogue import UnfitMethod
from sbtrpo.config.file import read_config, write_config
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Rule, declared
from sbtrpo.learning.check import check_method
from sbtrpo.runs.folder import RunFolder, read_run

METHOD = """
from dataclasses import dataclass
from sbtrpo.algorithms import TrustRegionMethod, TrustRegionSettings, natural_gradient_step
from sbtrpo.config.settings import setting

@dataclass(frozen=True)
class MineSettings(TrustRegionSettings):
    weight: float = setting(0.5, least=0)
    \"\"\"Of the cost.\"\"\"
    target_kl: float = 0.005

class Mine(TrustRegionMethod):
    \"\"\"Reward less some of the cost.\"\"\"
    Settings = MineSettings
    def propose(self, region, gradients, costs):
        return natural_gradient_step(region, gradients, (1.0, -self.settings.weight), self.settings)
"""


@pytest.fixture(autouse=True)
def _nothing_stays_known() -> Iterator[None]:
    """What a package announced in a test is forgotten after it."""
    yield
    catalogue._named.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(METHOD)
    return path


def test_a_class_in_a_file_is_a_method_with_its_settings(file: Path) -> None:
    config = TrainConfig(algo=f"{file}:Mine", weight=2)
    assert (config.get("weight"), config.get("target_kl"), config.get("cg_iterations")) == (2.0, 0.005, 15)
    entry = catalogue.method(config.algo)
    assert (entry.label, entry.title, entry.summary) == ("Mine", "Mine", "Reward less some of the cost")


def test_what_a_file_says_counts_and_no_bytecode_of_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of the same length within the same second, which Python's cache of bytecode would not notice."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    stamp = file.stat().st_mtime
    assert TrainConfig(algo=f"{file}:Mine").get("weight") == 0.5
    file.write_text(METHOD.replace("setting(0.5", "setting(0.7"))
    os.utime(file, (stamp, stamp))
    assert TrainConfig(algo=f"{file}:Mine").get("weight") == 0.7
    assert [path.name for path in file.parent.iterdir()] == ["mine.py"]


def test_a_class_in_a_module_of_the_working_directory_is_a_method(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    file.rename(file.with_name("some_module_of_mine.py"))
    assert TrainConfig(algo="some_module_of_mine:Mine").get("weight") == 0.5


def test_a_name_that_a_package_announces_is_a_method(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    file.rename(file.with_name("methods_of_some_package.py"))
    point = importlib.metadata.EntryPoint("mine", "methods_of_some_package:Mine", catalogue.GROUP)
    monkeypatch.setattr(catalogue, "_announced", lambda: {"mine": point})
    assert catalogue.names()[-1] == "mine"
    assert TrainConfig(algo="Mine").algo == "mine"
    assert catalogue.owners("weight") == ["mine"]


def test_a_file_elsewhere_is_the_same_method_and_an_edited_one_another(file: Path, tmp_path: Path) -> None:
    digest = TrainConfig(algo=f"{file}:Mine").digest()
    copy = tmp_path / "copy" / "other_name.py"
    copy.parent.mkdir()
    copy.write_text(METHOD)
    assert TrainConfig(algo=f"{copy}:Mine").digest() == digest
    file.write_text(METHOD + "\n# edited\n")
    assert TrainConfig(algo=f"{file}:Mine").digest() != digest


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("class Mine(", "class Other(", "has no class 'Mine'; did you mean Other"),
        ("class Mine(TrustRegionMethod)", "class Mine", "Mine is no method: derive the class from"),
        ("def propose", "def suppose", "does not say how it updates; define propose"),
        ("weight: float", "gamma: float", "has a setting gamma, which runs or commands have, too"),
        ("weight: float", "num_seeds: float", "has a setting num_seeds, which runs or commands have, too"),
        ("weight: float", "pack: float", "has a setting pack, which runs or commands have, too"),
        ("weight: float", "weight: 'NoSuchType'", "the types of .*Mine.Settings cannot be read: name 'NoSuchType'"),
        ("setting(0.5, least=0)", "setting(-1.0, least=0)", "has a default that its own setting does not allow"),
        ("@dataclass(frozen=True)", "@dataclass", "non-frozen dataclass"),
        ("Settings = MineSettings", "Settings = dict", "is no class of settings"),
        ("from dataclasses", "raise RuntimeError('no licence')\nfrom dataclasses", "raised RuntimeError: no licence"),
        ("from dataclasses", "def f(:\nfrom dataclasses", "raised SyntaxError"),
    ],
)
def test_a_class_that_cannot_be_used_is_told_in_a_sentence(file: Path, old: str, new: str, sentence: str) -> None:
    assert old in METHOD
    file.write_text(METHOD.replace(old, new))
    with pytest.raises(UnfitMethod, match=sentence) as error:
        TrainConfig(algo=f"{file}:Mine")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.py:Mine", "the file nowhere.py cannot be read"),
        ("no_such_module_here:Mine", "no_such_module_here cannot be imported"),
        (":Mine", "':Mine' names no method"),
        ("mine.py:", "'mine.py:' names no method"),
        ("json:loads", "json:loads is no method"),
    ],
)
def test_places_that_hold_no_method_are_told_in_a_sentence(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ToyCorridor-v0", "--algo", name]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_its_settings_are_on_the_command_line_and_in_help(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--algo", f"{file}:Mine", "--help"])
    assert "--weight" in capsys.readouterr().out
    assert main(["train", "ToyCorridor-v0", "--algo", f"{file}:Mine", "--weight", "-1"]) == 2
    assert "weight must be at least 0, got -1.0" in capsys.readouterr().err
    assert main(["algorithms", f"{file}:Mine"]) == 0
    assert "Reward less some of the cost" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(most=1), "at most 1"),
        (Rule(above=0, below=1), "above 0 and below 1"),
        (Rule(least=0, most=1), "between 0 and 1"),
        (Rule(least=2), "at least 2"),
    ],
)
def test_bounds_are_told_in_words(rule: Rule, words: str) -> None:
    assert rule.bounds() == words


def test_every_option_of_the_commands_is_reserved() -> None:
    options = {*inspect.signature(runs.train).parameters, *inspect.signature(app.benchmark).parameters}
    assert options - set(declared(RunSettings)) <= {*catalogue.RESERVED, "threads"}


def with_defaults(file: Path, defaults: str) -> str:
    """The method of a file, with these defaults of a run's settings."""
    file.write_text(METHOD.replace("    Settings =", f"    run_defaults = {defaults}\n    Settings ="))
    return f"{file}:Mine"


def test_a_method_may_have_defaults_of_a_runs_settings(file: Path, tmp_path: Path) -> None:
    algo = with_defaults(file, "{'epoch_growth': 1, 'hidden': [32, 16], 'engine': 'cpu'}")
    config = TrainConfig(algo=algo)
    assert (config.epoch_growth, config.hidden, config.gamma, config.given) == (1.0, (32, 16), 0.99, {"algo": algo})
    assert TrainConfig(algo=algo, epoch_growth=0, hidden=(8,)).hidden == (8,)
    assert TrainConfig(algo=algo, epoch_growth=0).epoch_growth == 0
    assert config.replace(epoch_growth=0.5).replace(epoch_growth=None) == config == config.replace(hidden=(32, 16))
    assert config.replace(algo="cpo") == TrainConfig(algo="cpo")
    assert TrainConfig(**config.settings()) == config
    assert len({config.replace(**own).digest() for own in ({}, {"epoch_growth": 1}, {"epoch_growth": 0})}) == 2
    with pytest.raises(ValueError, match="steps_per_epoch must be a multiple of num_envs, got 20000 and 21"):
        TrainConfig(algo=with_defaults(file, "{'num_envs': 21}"))


def test_files_of_settings_have_or_keep_a_methods_defaults_of_a_run(file: Path, tmp_path: Path) -> None:
    config = TrainConfig(algo=with_defaults(file, "{'epoch_growth': 1.0, 'num_envs': 10}"))
    short, whole = tmp_path / "short.toml", tmp_path / "config.toml"
    short.write_text(f'algo = "{config.algo}"')
    write_config(whole, config)
    assert "epoch_growth = 1.0" in whole.read_text()
    assert read_config(short) == read_config(whole) == read_run(tmp_path) == config
    write_config(whole, config.replace(num_envs=20, epoch_growth=0))
    assert read_run(tmp_path) == config.replace(num_envs=20, epoch_growth=0)
    edited = [line for line in whole.read_text().splitlines() if "epoch_growth" not in line]
    whole.write_text("\n".join(edited))
    assert read_run(tmp_path).epoch_growth == 1.0  # somebody's own file, whatever its name
    (tmp_path / "run.json").write_text("{}")  # as a run wrote it before there was such a setting
    assert read_run(tmp_path).epoch_growth == 0.0


def test_plans_and_commands_have_a_methods_defaults_of_a_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    algo = with_defaults(file, "{'epoch_growth': 0.25}")
    plan = tmp_path / "plan.toml"
    plan.write_text(f'tasks = ["ToyCorridor-v0"]\nalgos = ["{algo}", "cpo"]\n')
    assert [config.epoch_growth for config in Plan.from_file(plan).runs()] == [0.25, 0.0]
    plan.write_text(f'tasks = ["ToyCorridor-v0"]\nalgos = ["{algo}", "cpo"]\nepoch_growth = [0.0, 0.5]\n')
    assert sorted(config.epoch_growth for config in Plan.from_file(plan).runs()) == [0.0, 0.0, 0.5, 0.5]
    with pytest.raises(SystemExit):
        main(["train", "--algo", algo, "--help"])
    assert re.search(r"--epoch-growth.*\(default: 0\.25\)", capsys.readouterr().out)
    assert main(["algorithms", algo]) == 0
    assert re.search(r"epoch_growth +. 0\.25 ", capsys.readouterr().out)
    assert main(["algorithms", "cpo"]) == 0
    assert "epoch_growth" not in capsys.readouterr().out
    small = ["--num-envs", "2", "--steps-per-epoch", "100", "--total-steps", "1100", "--quiet", "--out"]
    for flags, epochs in ([], 9), (["--epoch-growth", "0"], 11):
        run = tmp_path / str(epochs)
        assert main(["train", "ToyCorridor-v0", "--algo", algo, *flags, *small, str(run)]) == 0
        assert RunFolder.open(run).last_epoch == epochs


def test_a_method_with_defaults_of_a_run_is_tried_and_reported_as_itself(file: Path, tmp_path: Path) -> None:
    algo = with_defaults(file, "{'epoch_growth': 1.0, 'steps_per_epoch': 100, 'num_envs': 2, 'total_steps': 400}")
    assert check_method(algo).ok
    train(TrainConfig(task="ToyCorridor-v0", algo=algo), tmp_path / "runs" / "one", quiet=True)
    table = collect(tmp_path / "runs").table
    assert table["steps"].to_pylist() == [100, 200, 400]
    assert "epoch_growth" not in table.column_names  # it is the method's own


@pytest.mark.parametrize(
    ("defaults", "sentence"),
    [
        ("{'epoch_grow': 1}", r"Mine.run_defaults names 'epoch_grow', no setting of a run; did you mean epoch_growth"),
        ("{'weight': 1}", r"Mine.run_defaults names 'weight', no setting of a run"),
        ("{3: 1}", r"Mine.run_defaults names 3, no setting of a run"),
        ("{'task': 'ToyCorridor-v0'}", r"Mine.run_defaults names task, which is no method's to choose; remove it"),
        ("{'algo': 'cpo'}", r"Mine.run_defaults names algo, which is no method's to choose"),
        ("{'seed': 3}", r"Mine.run_defaults names seed, which is no method's to choose"),
        ("{'epoch_growth': 2}", r"has a value that no run can have: epoch_growth must be between 0 and 1, got 2.0"),
        ("{'num_envs': None}", r"has a value that no run can have: num_envs must be a whole number, got None"),
        (
            "['epoch_growth']",
            r"Mine.run_defaults must be a dict from settings of a run to values, got \['epoch_growth'",
        ),
    ],
)
def test_defaults_that_no_run_can_have_are_told_in_a_sentence(file: Path, defaults: str, sentence: str) -> None:
    with pytest.raises(UnfitMethod, match=sentence) as error:
        TrainConfig(algo=with_defaults(file, defaults))
    assert "\n" not in str(error.value)


def test_what_the_methods_here_have_by_default_is_what_a_run_can_have() -> None:
    for entry in map(catalogue.method, catalogue.BUILT_IN):
        assert catalogue._fit(entry.name, entry.implementation) is entry.implementation


def test_a_first_order_method_without_a_loss_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from sbtrpo.algorithms import FirstOrderMethod\nclass Mine(FirstOrderMethod):\n    pass\n"
    )
    with pytest.raises(UnfitMethod, match=r"does not say how it updates; define loss\(self, batch\)"):
        TrainConfig(algo=f"{tmp_path / 'mine.py'}:Mine")


def test_what_a_users_method_raises_in_training_is_told_with_its_place(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(METHOD.replace("(1.0, -self.settings.weight)", "(1.0,)"))
    sizes = ["--num-envs", "2", "--steps-per-epoch", "100", "--total-steps", "100", "--quiet"]
    assert main(["train", "ToyCorridor-v0", "--algo", f"{file}:Mine", *sizes, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "an update of Mine raised ValueError" in error
    assert f"in {file}, line" in error


def test_a_plans_own_methods_settings_can_be_given_beside_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'tasks = ["ToyCorridor-v0"]\nalgos = ["{file}:Mine"]\nweight = [0.1, 0.2]\n')
    assert main(["benchmark", str(plan), "--weight", "0.7", "--dry-run", "--out", str(tmp_path / "runs")]) == 0
    assert "1 runs" in capsys.readouterr().out
