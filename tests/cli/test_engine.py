"""`--engine` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrpo.cli import main
from sbtrpo.config.file import read_config
from sbtrpo.envs import engines

TOY = ["train", "ToyCorridor-v0", "--num-envs", "4", "--steps-per-epoch", "200", "--total-steps", "200", "--quiet"]


def test_auto_is_the_default_and_another_engine_is_kept(tmp_path: Path) -> None:
    assert main([*TOY, "--out", str(tmp_path / "run")]) == 0
    assert read_config(tmp_path / "run" / "config.toml").engine == "auto"
    assert main(["resume", str(tmp_path / "run"), "--quiet", "--engine", "cpu"]) == 0
    assert read_config(tmp_path / "run" / "config.toml").engine == "cpu"


def test_what_a_gpu_lacks_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for lacking in ("there is no driver; install it, or use engine=cpu", "it is not installed; install it"):
        monkeypatch.setattr(engines, "missing", lambda engine, lacking=lacking: lacking)
        words = ["train", "SafetyPointGoal2-v0", "--engine", "gpu", "--out", str(tmp_path / "run")]
        assert main(words) == 2
        assert capsys.readouterr().err == f"sbtrpo: {lacking}\n"
    assert not (tmp_path / "run").exists()


def test_an_evaluation_takes_an_engine_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOY, "--out", str(tmp_path / "run")]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "4", "--json"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "4", "--engine", "gpu"]) == 2
    assert "no physics that a GPU could simulate" in capsys.readouterr().err


def test_environments_are_checked_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "ToyCorridor-v0", "--engine", "gpu"]) == 2
    assert "leave it out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_method_is_checked_where_its_tensors_are() -> None:
    from sbtrpo.learning.check import check_method

    assert check_method("ppo", task="SafetySwimmerVelocity-v1", engine="gpu-on-cpu").ok
