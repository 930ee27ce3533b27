"""A run may begin with the policy of another one: as that was then, whatever becomes of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect
from sbtrpo.benchmark.command import benchmark
from sbtrpo.benchmark.plan import Plan
from sbtrpo.cli import app as cli
from sbtrpo.config.run import Which
from sbtrpo.errors import UserError
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.folder import START_FILE, RunFolder, read_run
from sbtrpo.runs.policy_file import stored_policy

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=800, hidden=(8, 8), threads=1)
CRITICS = TOY.replace(algo="sb-trpo_critic")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(CRITICS.replace(seed=5, keep_every=1), tmp_path_factory.mktemp("trained"), quiet=True)


@pytest.fixture
def source(trained: Path, tmp_path: Path) -> Path:
    """One that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "source"))


def saved(run: Path, which: Which) -> dict[str, Any]:
    return CheckpointStore(run / "checkpoints").load(which)[1]


def axes(config: TrainConfig, **several: Any) -> dict[str, Any]:
    """Settings as a grid has them."""
    return {"tasks" if name == "task" else name: value for name, value in {**config.given, **several}.items()}


def metrics(run: Path) -> bytes:
    return (run / "metrics.csv").read_bytes()


@pytest.mark.parametrize("which", ["last", "best", 2])
def test_a_run_begins_with_networks_and_statistics_of_the_checkpoint_that_is_named(source: Path, which: Which) -> None:
    trainer = Trainer(CRITICS.replace(init_from=str(source), init_which=which))
    state = saved(source, which)
    for ours, theirs in zip(trainer.policy.params, state["policy"]["params"], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    count = state["policy"]["normaliser"]["count"]
    assert float(trainer.policy.normaliser.count) == count + 2 * CRITICS.num_envs  # and the first observations
    assert trainer.critics is not None
    np.testing.assert_array_equal(trainer.critics.state_dict()["params"], state["critics"]["params"])


def test_critics_begin_anew_where_there_were_none_or_others(source: Path) -> None:
    anew = Trainer(CRITICS.replace(algo="sb-trpo_rcritic"))
    trainer = Trainer(CRITICS.replace(algo="sb-trpo_rcritic", init_from=str(source)))
    assert trainer.critics is not None
    assert anew.critics is not None
    np.testing.assert_array_equal(trainer.critics.state_dict()["params"], anew.critics.state_dict()["params"])
    assert "critics begin anew" in trainer.beginning
    assert "critics" not in Trainer(TOY.replace(init_from=str(source))).beginning


def test_a_file_is_the_same_start_as_its_checkpoint(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(stored_policy(source, 2).content)
    one, other = TOY.replace(init_from=str(source), init_which=2), TOY.replace(init_from=str(file))
    assert one.digest() == other.digest() != TOY.digest()
    runs = [sbtrpo.train(config, tmp_path / name, quiet=True) for name, config in (("one", one), ("other", other))]
    assert metrics(runs[0]) == metrics(runs[1])


def test_a_run_goes_on_as_it_was_when_its_source_is_gone(source: Path, tmp_path: Path) -> None:
    whole = sbtrpo.train(CRITICS, tmp_path / "whole", quiet=True, init_from=source)
    part = sbtrpo.train(CRITICS.replace(total_steps=400), tmp_path / "part", quiet=True, init_from=source)
    unborn = tmp_path / "unborn"
    RunFolder.create(unborn, CRITICS.replace(init_from=str(source))).close()  # killed before its first epoch
    shutil.rmtree(source)
    sbtrpo.resume(part, quiet=True, total_steps=800)
    sbtrpo.resume(unborn, quiet=True)
    assert metrics(part) == metrics(unborn) == metrics(whole)
    assert read_run(part).digest() == read_run(whole).digest() != CRITICS.digest()


def test_a_source_that_goes_on_changes_no_run_that_began_with_it(source: Path, tmp_path: Path) -> None:
    part = sbtrpo.train(TOY.replace(total_steps=400), tmp_path / "part", quiet=True, init_from=source)
    begun = TOY.replace(init_from=str(source)).digest()
    sbtrpo.resume(source, quiet=True, total_steps=1000)
    assert TOY.replace(init_from=str(source)).digest() != begun == read_run(part).replace(total_steps=800).digest()
    assert TOY.replace(init_from=str(source), init_which=4).digest() == begun
    sbtrpo.resume(part, quiet=True, total_steps=800)
    whole = sbtrpo.train(TOY, tmp_path / "whole", quiet=True, init_from=part / START_FILE)
    assert metrics(part) == metrics(whole)


def test_a_changed_copy_is_noticed(source: Path, tmp_path: Path) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=400), tmp_path / "run", quiet=True, init_from=source)
    (run / START_FILE).write_bytes(stored_policy(source, 1).content)
    with pytest.raises(UserError, match=r"start\.safetensors was edited"):
        sbtrpo.resume(run, quiet=True, total_steps=800)
    (run / START_FILE).unlink()
    shutil.rmtree(source)
    with pytest.raises(UserError, match=r"start\.safetensors was edited .*put it back"):
        sbtrpo.resume(run, quiet=True, total_steps=800)


def test_a_run_that_a_callback_refuses_leaves_no_copy(source: Path, tmp_path: Path) -> None:
    class Refusing(sbtrpo.Callback):
        def on_start(self, run: Any) -> None:
            assert (run.path / START_FILE).exists()
            raise UserError("not today")

    with pytest.raises(UserError, match="not today"):
        sbtrpo.train(TOY, tmp_path / "run", quiet=True, init_from=source, callbacks=Refusing())
    assert not (tmp_path / "run").exists()


def test_a_damaged_copy_leaves_the_other_runs_readable(source: Path, tmp_path: Path) -> None:
    runs = [sbtrpo.train(TOY, tmp_path / "runs" / name, quiet=True, init_from=source) for name in ("whole", "damaged")]
    (runs[1] / START_FILE).write_bytes(b"rubbish")
    found = collect(tmp_path / "runs")
    assert set(found.table["run"].to_pylist()) == {"whole"}
    assert "start.safetensors holds no policy of sbtrpo" in found.unreadable["damaged"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "SafetyPointGoal1-v0"}, "for 2 observations and 2 actions, and SafetyPointGoal1-v0 has 60"),
        ({"hidden": (16, 8)}, "has hidden 8 8, and the run hidden 16 8; give --hidden 8 8"),
        ({"hidden": (8,), "activation": "relu"}, "give --hidden 8 8 --activation tanh"),
        ({"normalise_observations": False}, "give --normalise-observations True"),
        ({"init_which": 77}, "holds no checkpoint of epoch 77; there are"),
        ({"init_from": "nowhere"}, "nowhere is no policy to go on from; name a run's folder, or"),
        ({"init_from": "gone.safetensors"}, r"there is no gone\.safetensors; name a run's folder"),
        ({"init_from": "tests"}, "tests is not the folder of a run"),
        ({"init_from": "policy.onnx"}, "no policy to go on from; name a run's folder, or"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    config = TOY.replace(init_from=str(source)).replace(**settings)
    for attempt in (
        lambda: sbtrpo.train(config, tmp_path / "run", quiet=True),
        lambda: benchmark(settings=axes(config), out=tmp_path / "runs", quiet=True),
    ):
        with pytest.raises((UserError, OSError, ValueError), match=words):
            attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_bounds_of_actions_are_part_of_a_policy(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sbtrpo.learning.trainer as module

    made = module.make_policy

    def other_bounds(*arguments: Any) -> Any:
        policy = made(*arguments)
        policy.high = policy.high * 2
        return policy

    monkeypatch.setattr(module, "make_policy", other_bounds)
    with pytest.raises(UserError, match=r"the actions of .* have other bounds or shapes than those of ToyCorridor-v0"):
        Trainer(TOY.replace(init_from=str(source)))


def test_the_command_line_and_config_files_begin_with_a_policy(source: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    flags = [word for name, value in TOY.given.items() if name != "hidden" for word in (f"--{name}", str(value))]
    begin = ["--hidden", "8", "8", "--init-from", str(source), "--init-which", "3"]
    assert cli.main(["train", *flags, *begin, "--out", str(out), "--quiet"]) == 0
    assert (out / START_FILE).read_bytes() == stored_policy(source, 3).content
    assert "init_which = 3" in (out / "config.toml").read_text()
    shutil.rmtree(source)
    assert cli.main(["train", "--config", str(out), "--out", str(again), "--quiet"]) == 0
    assert metrics(again) == metrics(out)


def test_packs_begin_with_policies_as_single_runs_do(source: Path, tmp_path: Path) -> None:
    grid = axes(TOY, seed=[0, 1], init_from=[str(source)], init_which=[2, "last"])
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert benchmark(settings=grid, out=together, pack=4, workers=1, quiet=True) == 0
    for config in Plan.from_settings(grid).runs():
        run = sbtrpo.train(config, alone / config.digest() / str(config.seed), quiet=True)
        (twin,) = together.glob(f"*/*/seed{config.seed}-{config.digest()}")
        assert metrics(run) == metrics(twin)
    assert len(list((together / "policies").iterdir())) == 2
    shutil.rmtree(source)
    table = collect(together).table
    starts = {stored_policy(file).identity for file in (together / "policies").iterdir()}
    assert set(table["init_from"].to_pylist()) == starts


def test_folders_of_runs_that_begin_anew_keep_their_names() -> None:
    assert TrainConfig().digest() == "c1727b58"


def test_polishing_is_the_published_update_from_first_hits_with_steady_statistics(source: Path, tmp_path: Path) -> None:
    polished = TOY.replace(algo="sb-trpo_polished", init_from=str(source))
    in_full = TOY.replace(init_from=str(source), cost_to_go="first-hit", statistics="steady")
    runs = [sbtrpo.train(config, tmp_path / config.algo, quiet=True) for config in (polished, in_full)]
    assert metrics(runs[0]) == metrics(runs[1])
    assert TrainConfig(algo="sb-trpo_polished").steps_per_epoch == 1000 * TrainConfig(algo="sb-trpo_polished").num_envs


def test_what_is_for_trained_policies_says_so_where_there_is_none(source: Path) -> None:
    polished = TOY.replace(algo="sb-trpo_polished")
    assert polished.notes() == [
        "sb-trpo_polished is for a policy that is trained already: name its file or run with init_from"
    ]
    assert polished.replace(init_from=str(source)).notes() == TOY.notes() == []
