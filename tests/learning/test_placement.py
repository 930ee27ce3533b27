"""Where a run's worlds and its learner are, on a machine with a GPU and on one without."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import torch

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.envs import engines
from sbtrpo.errors import UserError
from sbtrpo.learning import placement
from sbtrpo.learning.placement import place
from sbtrpo.runs.folder import RunFolder

MANY = TrainConfig(task="SafetyPointGoal2-v0", num_envs=4096, steps_per_epoch=40_960)
TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=400, total_steps=400)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU."""
    for module in (engines, placement):
        monkeypatch.setattr(module, "missing", lambda engine: "")
    monkeypatch.setattr(engines, "available_cores", lambda: 16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("engine", "device", "worlds", "expected"),
    [
        ("auto", "auto", 4096, ("gpu", "cuda")),
        ("auto", "auto", 20, ("cpu", "cpu")),
        ("auto", "cpu", 4096, ("cpu", "cpu")),
        ("auto", "cuda", 20, ("cpu", "cuda")),
        ("auto", "cuda", 4096, ("gpu", "cuda")),
        ("gpu", "auto", 20, ("gpu", "cuda")),
        ("gpu", "cuda:0", 20, ("gpu", "cuda:0")),
        ("cpu", "auto", 4096, ("cpu", "cpu")),
        ("gpu-on-cpu", "auto", 20, ("gpu-on-cpu", "cpu")),
    ],
)
def test_the_learner_is_where_the_worlds_are(engine: str, device: str, worlds: int, expected: tuple[str, str]) -> None:
    placed = place(MANY.replace(engine=engine, device=device, num_envs=worlds, steps_per_epoch=worlds))
    assert (placed.engine, placed.device) == expected


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("engine", "device"), [("gpu", "cpu"), ("gpu", "cuda:1"), ("gpu-on-cpu", "cuda")])
def test_a_learner_elsewhere_is_refused(engine: str, device: str) -> None:
    with pytest.raises(UserError, match=f"leave device={device} out, or use engine=cpu"):
        place(MANY.replace(engine=engine, device=device))


@pytest.mark.usefixtures("gpu")
def test_a_run_keeps_the_engine_that_auto_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place(MANY, before="cpu").engine == "cpu"
    few = MANY.replace(num_envs=20, steps_per_epoch=20)
    assert place(few, before="gpu").engine == "gpu"
    assert place(few.replace(engine="cpu"), before="gpu").engine == "cpu"
    monkeypatch.setattr(placement, "missing", lambda engine: "there is none")
    assert place(few, before="gpu").engine == "cpu"


def test_a_run_tells_on_which_engines_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sbtrpo.train(TOY, tmp_path / "run")
    assert "engine cpu: ToyCorridor-v0 has no physics" in capsys.readouterr().out
    origin = json.loads((run / "run.json").read_text())
    assert origin["engines"] == [{"engine": "cpu", "after_epoch": 0}]
    folder = RunFolder.open(run)
    folder.note_engine("gpu", 1)
    folder.note_engine("gpu", 2)
    folder.close()
    assert RunFolder.open(run).engine == "gpu"
    assert [entry["after_epoch"] for entry in json.loads((run / "run.json").read_text())["engines"]] == [0, 1]


def test_another_engine_is_written_down_and_all_else_stays(tmp_path: Path) -> None:
    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    before = tomllib.loads((run / "config.toml").read_text())
    sbtrpo.resume(run, quiet=True, engine="cpu")
    after = tomllib.loads((run / "config.toml").read_text())
    assert after == {**before, "engine": "cpu", "device": "auto"}
    with pytest.raises(UserError, match="no physics"):
        sbtrpo.resume(run, quiet=True, engine="gpu")
    assert tomllib.loads((run / "config.toml").read_text()) == after
    sbtrpo.resume(run, quiet=True, engine="auto", device="cpu")
    assert tomllib.loads((run / "config.toml").read_text()) == {**before, "engine": "auto", "device": "cpu"}
    sbtrpo.resume(run, quiet=True, engine="cpu", device="cpu")  # as it is, and another engine alone would move it
    assert tomllib.loads((run / "config.toml").read_text()) == {**before, "engine": "cpu", "device": "cpu"}


@pytest.mark.slow
def test_a_run_goes_on_on_another_engine_both_ways(tmp_path: Path) -> None:
    """The worlds of one engine are those of the other, where the first one stopped."""
    pytest.importorskip("mujoco_warp")
    config = TrainConfig(task="SafetyHopperVelocity-v1", num_envs=2, steps_per_epoch=40, total_steps=40)
    for one, other in (("cpu", "gpu-on-cpu"), ("gpu-on-cpu", "cpu")):
        run = sbtrpo.train(config.replace(engine=one), tmp_path / one, quiet=True)
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("total_steps = 40", "total_steps = 80"))
        sbtrpo.resume(run, quiet=True, engine=other)
        folder = RunFolder.open(run)
        assert folder.is_finished
        assert [entry["engine"] for entry in json.loads((run / "run.json").read_text())["engines"]] == [one, other]
