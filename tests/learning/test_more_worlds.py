"""Runs whose longer epochs have more worlds: those that are there go on, and others begin beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.pack import pack_key, train_pack
from sbtrpo.cli import main
from sbtrpo.errors import UserError
from sbtrpo.learning import placement
from sbtrpo.learning.identity import changed_settings, plain
from sbtrpo.learning.placement import place
from sbtrpo.learning.trainer import Epoch, Trainer
from sbtrpo.runs import checkpoint
from sbtrpo.runs.folder import RunFolder
from tests.learning.test_growth import ENDS, LENGTHS, growing, metrics, steps_of

pytestmark = pytest.mark.usefixtures("one_thread")


def more_worlds(algo: str = "sb-trpo", **settings: Any) -> TrainConfig:
    """Four worlds at first, sixteen in the last of seven epochs."""
    return growing(algo, **{"grow_by": "worlds"} | settings)


def worlds_of(epoch: Epoch) -> list[int]:
    return sorted(epoch.episodes["world"].tolist())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(more_worlds(), tmp_path_factory.mktemp("runs") / "run", quiet=True)


# ---- epochs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("sb-trpo", {}),
        ("sb-trpo", {"statistics": "steady", "advantage": "mc-linear"}),
        ("cpo", {}),
        ("ppo_lag", {"statistics": "steady"}),
        ("sb-trpo", {"task": "SafetyPointGoal1-v0", "constraints": ("each",)}),
        ("sb-trpo", {"task": "SafetyHopperVelocity-v1"}),
    ],
)
def test_every_epoch_has_its_worlds_and_is_resumed_among_them(
    algo: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = more_worlds(algo, **settings)
    trainer = Trainer(config)
    rows = [trainer.run_epoch().row for _ in range(5)]
    checkpoint.save(tmp_path / "state", trainer.state_dict())
    restored = Trainer(config)
    restored.load_state_dict(checkpoint.load(tmp_path / "state"))
    for length in LENGTHS[5:]:
        assert trainer.steps_per_world == 50
        rows.append(trainer.run_epoch().row)
        assert trainer.collector.pool.num_worlds == 4 * length
        assert repr(rows[-1]) == repr(restored.run_epoch().row)
    assert [row["steps"] for row in rows] == ENDS


def test_a_run_whose_epochs_were_longer_goes_on_with_more_worlds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sbtrpo.train(growing(total_steps=ENDS[5]), tmp_path / "run", quiet=True)
    words = ["resume", str(run), "--quiet", "--total-steps", str(ENDS[-1]), "--grow-by", "worlds"]
    assert main(words) == 0
    assert steps_of(run) == ENDS
    episodes = RunFolder.open(run).episodes()
    worlds = {epoch: set(episodes["world"][episodes["epoch"] == epoch].tolist()) for epoch in (6, 7)}
    assert worlds == {6: set(range(4)), 7: set(range(4 * LENGTHS[6]))}
    (length,) = json.loads((run / "run.json").read_text(encoding="utf-8"))["lengths"]
    assert length == {"total_steps": ENDS[5], "grow_by": "steps", "until_epoch": 6}
    with RunFolder.create(run, growing(total_steps=ENDS[-1]), resume=True) as folder:  # as a benchmark does
        assert folder.config.grow_by == "worlds"
    assert main([*words[:2], "--grow-by", "steps"]) == 0  # it is at its end
    assert RunFolder.open(run).config.grow_by == "worlds"
    assert main([*words[:-3], str(2 * ENDS[-1]), "--grow-by", "steps"]) == 2
    assert "none can be taken away; leave grow_by as it is" in capsys.readouterr().err
    alike = sbtrpo.train(growing(epoch_growth=0.0, total_steps=400), tmp_path / "alike", quiet=True)
    with pytest.raises(UserError, match="all alike; leave grow_by out"):
        sbtrpo.resume(alike, quiet=True, grow_by="worlds")


def test_epochs_are_those_of_longer_ones_until_there_are_more_worlds() -> None:
    ours, theirs = Trainer(more_worlds()), Trainer(growing())
    for _ in range(4):
        assert repr(ours.run_epoch().row) == repr(theirs.run_epoch().row)
    few, many = theirs.run_epoch(), ours.run_epoch()
    assert len(few.episodes["return"]) == len(many.episodes["return"]) == 8
    assert worlds_of(few) == sorted([0, 1, 2, 3] * 2)
    assert worlds_of(many) == list(range(8))


def test_worlds_go_on_where_they_were_and_others_begin() -> None:
    """Epochs end amid episodes: those of the first worlds are 30 steps old when the others begin."""
    trainer = Trainer(more_worlds(steps_per_epoch=120, epoch_growth=1.0, total_steps=480))
    trainer.run_epoch()
    before = trainer.run_epoch()
    assert worlds_of(before) == [0, 1, 2, 3]
    state, old = trainer.collector.state_dict(), trainer.collector
    assert trainer.grow()
    assert not trainer.grow()
    assert old is not trainer.collector
    grown = trainer.collector.state_dict()
    np.testing.assert_array_equal(grown["age"], [10] * 4 + [0] * 4)
    np.testing.assert_array_equal(grown["obs"][:4], state["obs"])
    np.testing.assert_array_equal(grown["pool"]["sums"][:, :4], state["pool"]["sums"])
    np.testing.assert_array_equal(grown["pool"]["steps"], [10] * 4 + [0] * 4)
    rollout = trainer.collector.collect(trainer.steps_per_world)
    np.testing.assert_allclose(rollout.time[0].numpy(), np.array([10] * 4 + [0] * 4) / 50)


def test_new_worlds_are_those_that_a_larger_pool_has() -> None:
    """World i's episodes depend on the seed and on i alone, whenever it joins."""
    task = {"task": "SafetyPointGoal1-v0", "hidden": (8, 8)}
    trainer = Trainer(more_worlds(**task))
    trainer.epoch = 6
    trainer.grow()
    larger = Trainer(growing(num_envs=16, steps_per_epoch=800, **task))
    ours, theirs = (each.collector.pool.last_obs for each in (trainer, larger))
    larger.collector.pool.reset(larger._worlds_seed)
    np.testing.assert_array_equal(ours[4:], larger.collector.pool.last_obs[4:])
    assert not np.array_equal(ours[4:], theirs[4:])  # the larger one has been reset twice, as published


def test_statistics_of_observations_take_in_what_new_worlds_show() -> None:
    trainer = Trainer(more_worlds())
    seen = []
    for _ in LENGTHS:
        trainer.run_epoch()
        seen.append(float(trainer.policy.normaliser.state_dict()["count"]))
    assert np.diff(seen).tolist() == pytest.approx([200, 200, 200, 404, 604, 804])  # four worlds join at a time


# ---- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_resumes_to_the_same_metrics_and_can_be_made_longer(run: Path, tmp_path: Path) -> None:
    short = sbtrpo.train(more_worlds(total_steps=1300), tmp_path / "short", quiet=True)
    sbtrpo.resume(short, quiet=True, total_steps=2600)
    assert metrics(short) == metrics(run)


def test_a_pack_gives_the_numbers_of_separate_runs(run: Path, tmp_path: Path) -> None:
    configs = [more_worlds(), more_worlds("cpo", seed=4), more_worlds(seed=5)]
    alone = [run, *(sbtrpo.train(config, tmp_path / f"alone{config.seed}", quiet=True) for config in configs[1:])]
    packed = [tmp_path / f"pack{config.seed}" for config in configs]
    for path, config in zip(packed, configs, strict=True):
        RunFolder.create(path, config).close()
    assert train_pack(packed) == []
    assert [metrics(path) for path in packed] == [metrics(path) for path in alone]


def test_a_learner_that_fails_before_worlds_join_is_not_taken_along(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = [tmp_path / f"pack{seed}" for seed in (4, 3)]
    for path, seed in zip(packed, (4, 3), strict=True):
        RunFolder.create(path, more_worlds(seed=seed)).close()

    def check(trainer: Trainer) -> None:
        if trainer.epoch == 3 and trainer.config.seed == 4:
            raise UserError("this one breaks")

    monkeypatch.setattr(Trainer, "check", check)
    assert train_pack(packed) == packed[:1]
    assert metrics(packed[1]) == metrics(run)


def test_only_learners_that_grow_alike_share_a_pool() -> None:
    assert pack_key(more_worlds()) != pack_key(growing())


# ---- settings ------------------------------------------------------------------------------------------------------


def test_it_tells_runs_apart_only_where_epochs_grow() -> None:
    assert more_worlds().digest() != growing().digest()
    assert more_worlds(epoch_growth=0.0).digest() == growing(epoch_growth=0.0).digest()
    assert growing(grow_by="steps").digest() == growing().digest()
    assert TrainConfig(algo="sb-trpo_growing").digest() == "f63e1c5f"  # folders keep their names


def test_the_engine_is_chosen_by_the_worlds_of_an_average_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def choose(engine: str, task: str, worlds: int) -> Any:
        asked.append(worlds)
        return placement.Choice("cpu", "so")

    monkeypatch.setattr(placement, "choose", choose)
    for config in (more_worlds(), growing(), TrainConfig(algo="sb-trpo_growing", grow_by="worlds")):
        place(config)
    assert asked == [7, 4, 87]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grow_by": "size"}, "grow_by must be one of steps, worlds, got 'size'"),
        (
            {"grow_by": "worlds", "epoch_growth": 0.5, "task": "my_package:MyEnv-v0"},
            "worlds of an environment of your own cannot be laid beside others; leave grow_by out, and they play for"
            " longer instead",
        ),
        (
            {"grow_by": "worlds", "epoch_growth": 1.0, "num_envs": 20_000, "total_steps": 10**6},
            "with grow_by worlds the last epoch would have 320,000 of them, and 100,000 are the most; choose a"
            " smaller total_steps, epoch_growth or num_envs, or leave grow_by out",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TrainConfig(**settings)


def test_a_run_whose_epochs_are_alike_says_that_it_changes_nothing() -> None:
    (note,) = more_worlds(epoch_growth=0.0).notes()
    assert note.startswith("grow_by changes nothing where epochs are all alike; give epoch_growth")
    assert more_worlds().notes() == []


def test_worlds_may_join_an_older_run() -> None:
    """Its checkpoint knows no such setting, and its epochs were longer."""
    saved = {name: plain(value) for name, value in growing().settings().items() if name != "grow_by"}
    assert changed_settings(saved, growing()) == changed_settings(saved, more_worlds()) == []
    assert changed_settings(saved, more_worlds(epoch_growth=0.25)) == ["epoch_growth (0.5, now 0.25)"]
