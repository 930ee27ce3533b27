"""Methods by name, by module, by file and by entry point; what is none is told in a sentence."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbtrpo import TrainConfig
from sbtrpo.cli import app, main, runs
from sbtrpo.config import catalogue
from sbtrpo.config.catalogue import UnfitMethod
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Rule, declared

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
