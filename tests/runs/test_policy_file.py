"""A policy as a file: it acts as in its run, its card says what it is worth, and what is no policy is told of."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.cli import app as cli
from sbtrpo.config.toml import read_toml
from sbtrpo.media.trajectories import draw_trajectories
from sbtrpo.runs.card import export_policy
from sbtrpo.runs.evaluation import evaluate, subject
from sbtrpo.runs.export import export
from sbtrpo.runs.folder import START_FILE
from sbtrpo.runs.policy_file import KEY, DamagedPolicy, StoredPolicy, stored_policy
from tests.envs.foreign.worlds import name_of

TOY, ROOMS = "ToyCorridor-v0", name_of("rooms")
SMALL: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 200, "total_steps": 600, "hidden": (8, 4), "threads": 1}


def trained(out: Path, **settings: Any) -> Path:
    return sbtrpo.train(TrainConfig(**{"task": TOY, **SMALL, **settings}), out, quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"algo": "cpo", "fidelity": "corrected", "activation": "elu", "seed": 3, "cg_damping": 0.2}
    return trained(tmp_path_factory.mktemp("runs") / "toy", keep_every=1, **settings)


def command(card: Path, name: str) -> list[str]:
    program, *words = shlex.split(read_toml(card)["commands"][name])
    assert program == "sbtrpo"
    return words


def numbers(found: Any) -> dict[str, Any]:
    """What was measured, whoever was."""
    return {**found.as_dict(), "policy": "", "checkpoint": None}


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_file_acts_as_its_checkpoint_does(run: Path, tmp_path: Path, deterministic: bool) -> None:
    file, _ = export_policy(run, tmp_path / "policy", which=2, episodes=5)
    assert numbers(evaluate(file, 20, deterministic=deterministic)) == numbers(
        evaluate(run, 20, deterministic=deterministic, which=2)
    )
    observations = np.random.default_rng(0).standard_normal((30, 2))
    ours, theirs = (sbtrpo.load_policy(*place).act(observations, seed=1) for place in ((file,), (run, 2)))
    np.testing.assert_array_equal(ours, theirs)


def test_a_file_is_small_the_same_every_time_and_says_nothing_of_the_machine(run: Path, tmp_path: Path) -> None:
    file, card = export_policy(run, tmp_path / "deep" / "name.with.dots", episodes=5)
    again, _ = export_policy(run, tmp_path / "again.safetensors", episodes=5)
    assert (file.name, card.name) == ("name.with.dots.safetensors", "name.with.dots.toml")
    assert file.read_bytes() == again.read_bytes()
    assert file.stat().st_size < 10_000
    for place in (str(tmp_path), str(run), str(Path.home())):
        assert place.encode() not in file.read_bytes() + card.read_bytes()


def test_a_card_says_what_the_policy_is_and_what_it_is_worth(run: Path, tmp_path: Path) -> None:
    file, card = export_policy(run, tmp_path / "policy", which=2, episodes=40, seed=11)
    told, found = read_toml(card), evaluate(run, 40, 11, which=2)
    assert told["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    what = {"task": TOY, "algo": "cpo", "seed": 3, "epoch": 2, "steps": 400, "engine": "cpu", "file": file.name}
    assert {name: told[name] for name in what} == what
    assert told["settings"]["cg_damping"] == 0.2
    measured = told["evaluation"]
    assert (measured["episodes"], measured["seed"], measured["deterministic"]) == (40, 11, False)
    assert measured["violation_probability_upper"] == found.violation_probability_upper
    assert measured["safety_probability_interval"] == list(found.safety_probability_interval)
    for name in ("reward", "cost", "safe_reward"):
        mean, half = getattr(found, name), 1.96 * getattr(found, f"{name}_std") / 40**0.5
        np.testing.assert_allclose(measured[f"{name}_interval"], [mean - half, mean + half], rtol=1e-3, atol=1e-9)


def test_the_commands_on_a_card_do_what_they_say(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", str(run), "--format", "policy", "--out", "policies/toy", "--episodes", "20"]) == 0
    card = tmp_path / "policies" / "toy.toml"
    assert cli.main([*command(card, "train"), "--out", "again", "--quiet", "--threads", "1"]) == 0
    assert (tmp_path / "again" / "metrics.csv").read_bytes() == (run / "metrics.csv").read_bytes()
    words = command(card, "export")
    assert words[1] == "RUN"
    before = (tmp_path / "policies" / "toy.safetensors").read_bytes()
    assert cli.main([words[0], "again", *words[2:], "--episodes", "20"]) == 0
    assert (tmp_path / "policies" / "toy.safetensors").read_bytes() == before
    capsys.readouterr()
    assert cli.main([*command(card, "evaluate"), "--json"]) == 0
    shown, told = json.loads(capsys.readouterr().out), read_toml(card)["evaluation"]
    assert {name: shown[name] for name in told if name in shown} == {name: told[name] for name in told if name in shown}
    shorter = ["--num-envs", "4", "--steps-per-epoch", "200", "--total-steps", "200", "--out", "begun", "--quiet"]
    assert cli.main([*command(card, "begin"), *shorter]) == 0
    assert (tmp_path / "begun" / START_FILE).read_bytes() == before
    assert command(card, "record") == ["record", "policies/toy.safetensors"]
    assert subject("policies/toy.safetensors").config.task == TOY  # which is what `record` asks


def test_a_run_that_began_with_a_policy_has_it_in_its_command(run: Path, tmp_path: Path) -> None:
    begun = trained(tmp_path / "begun", activation="elu", init_from=str(run), init_which=1)
    words = command(export_policy(begun, episodes=5)[1], "train")
    assert words[words.index("--init-from") + 1 : words.index("--init-which") + 2] == [run.name, "--init-which", "1"]


def test_the_command_names_the_engine_where_it_is_not_the_usual_one(run: Path, tmp_path: Path) -> None:
    on_gpu = Path(shutil.copytree(run, tmp_path / "run"))
    origin = json.loads((on_gpu / "run.json").read_text())
    (on_gpu / "run.json").write_text(json.dumps({**origin, "engines": [{"engine": "gpu", "after_epoch": 0}]}))
    card = export_policy(on_gpu, episodes=5)[1]
    assert command(card, "train")[-2:] == ["--engine", "gpu"]
    assert read_toml(card)["engine"] == "gpu"


def test_a_file_decides_on_no_task_that_is_code_or_a_file(tmp_path: Path) -> None:
    file, card = export_policy(trained(tmp_path / "run", task=ROOMS), episodes=5)
    with pytest.raises(ValueError, match=r"name the task .* with --task"):
        evaluate(file, 5)
    assert numbers(evaluate(file, 8, task=ROOMS)) == numbers(evaluate(tmp_path / "run", 8))
    assert command(card, "evaluate")[2:4] == ["--task", ROOMS]


def test_a_file_is_exported_and_drawn_as_its_run_is(run: Path, tmp_path: Path) -> None:
    file, _ = export_policy(run, tmp_path / "policy", episodes=5)
    assert export(file, "torchscript") == tmp_path / "policy.pt"
    assert evaluate(tmp_path / "policy.pt", 10).reward == evaluate(export(run, "torchscript"), 10).reward
    assert draw_trajectories(file, episodes=2) == tmp_path / "policy.png"


def test_each_constraint_is_on_the_card(tmp_path: Path) -> None:
    goal = {"task": "SafetyPointGoal2-v0", "num_envs": 2, "steps_per_epoch": 20, "total_steps": 20}
    constraints = ("hazards", "vases_contact+vases_velocity")
    told = read_toml(export_policy(trained(tmp_path / "run", **goal, constraints=constraints), episodes=2)[1])
    for name in constraints:
        assert 0 <= told["evaluation"][f"{name}_safety_probability"] <= 1


# ---- what is no policy -----------------------------------------------------------------------------------------------


def altered(stored: StoredPolicy, **changes: Any) -> bytes:
    """The file with other entries in its description."""
    size = int.from_bytes(stored.content[:8], "little")
    about = json.loads(json.loads(stored.content[8 : 8 + size])["__metadata__"][KEY])
    about["settings"] |= {name: value for name, value in changes.items() if name not in about}
    about |= {name: value for name, value in changes.items() if name in about}
    return safetensors.numpy.save(safetensors.numpy.load(stored.content), {KEY: json.dumps(about)})


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"epoch": "soon"},
        {"settings": None},
        {"structure": {"policy": {}}},
        {"hidden": [1e9]},
        {"hidden": [4, 8]},
        {"hidden": [8]},
        {"activation": "os.system"},
        {"network": "cnn"},
        {"seed": "x"},
        {"steps_per_epoch": None},
        {"epoch_growth": "much"},
        {"epoch_growth": -1},
        {"epoch_growth": 1, "epoch": 10**15},
    ],
    ids=str,
)
def test_a_file_that_holds_no_policy_is_told_of(run: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(altered(stored_policy(run), **changes))
    for attempt in (
        lambda: evaluate(file, 2),
        lambda: sbtrpo.train(TrainConfig(task=TOY, **SMALL, activation="elu", init_from=str(file)), tmp_path / "run"),
    ):
        with pytest.raises((DamagedPolicy, sbtrpo.errors.UserError), match=r"policy\.safetensors"):
            attempt()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}", None])
def test_damaged_bytes_are_told_of(run: Path, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(stored_policy(run).content[:-7] if content is None else content)
    with pytest.raises(DamagedPolicy, match=r"policy\.safetensors holds no policy of sbtrpo .* writes one"):
        evaluate(file, 2)
    assert cli.main(["evaluate", str(file)]) == 2


def test_parameters_that_are_not_finite_are_told_of_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    content, file = stored_policy(run).content, tmp_path / "policy.safetensors"
    size = int.from_bytes(content[:8], "little")
    arrays = safetensors.numpy.load(content)
    arrays["/policy/params/1"][0, 0] = np.nan
    file.write_bytes(safetensors.numpy.save(arrays, json.loads(content[8 : 8 + size])["__metadata__"]))
    with pytest.raises(DamagedPolicy, match="has parameters that are not finite; take another checkpoint"):
        sbtrpo.train(TrainConfig(task=TOY, **SMALL, activation="elu", init_from=str(file)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_has_no_checkpoints(run: Path, tmp_path: Path) -> None:
    file, _ = export_policy(run, tmp_path / "policy", episodes=2)
    with pytest.raises(ValueError, match="is one policy, and has no checkpoint best"):
        evaluate(file, 2, which="best")
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere\.safetensors"):
        evaluate("nowhere.safetensors", 2)
    assert cli.main(["export", str(run), "--format", "policy", "--stochastic"]) == 2
