"""What callbacks are told, what they may do, and that watching a run leaves it as it is."""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo import Callback, EarlyStopping, TrainConfig
from sbtrpo.benchmark.pack import train_pack
from sbtrpo.benchmark.states import LOG, is_done
from sbtrpo.cli.app import main
from sbtrpo.envs.foreign.pool import episode_seed
from sbtrpo.errors import UserError
from sbtrpo.learning.callbacks import Run
from sbtrpo.learning.recorder import Recorder
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Epoch
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.evaluation import Evaluation, evaluate
from sbtrpo.runs.folder import RunFolder
from tests.envs.foreign.worlds import name_of

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=1_200, hidden=(8,))
WATCHED = TOY.replace(evaluate_every=2, evaluate_episodes=10)


class Listener(Callback):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def on_start(self, run: Run) -> None:
        self.heard.append(("start", run.epoch))

    def on_epoch_begin(self, run: Run) -> None:
        self.heard.append(("begin", run.epoch))

    def on_rollout(self, run: Run, rollout: Rollout) -> None:
        assert rollout.reward.shape == (50, 4)
        self.heard.append(("rollout", run.epoch))

    def on_update(self, run: Run, diagnostics: dict[str, float]) -> None:
        assert "kl" in diagnostics
        self.heard.append(("update", run.epoch))

    def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
        assert run.folder.metrics()["reward"][-1] == epoch.row["reward"]
        self.heard.append(("end", run.epoch))

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        assert run.folder.evaluations()["reward"][-1] == evaluation.reward
        self.heard.append(("evaluation", run.epoch))

    def on_stop(self, run: Run) -> None:
        assert run.folder.last_epoch == run.epoch
        self.heard.append(("stop", run.epoch))


class Heard(Callback):
    """Notes what evaluations say of faults."""

    def __init__(self) -> None:
        self.faulted: list[int] = []

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self.faulted.append(evaluation.faulted_episodes)


class StopAt(Callback):
    """Stops a run after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
        if run.epoch == self.epoch:
            run.stop("it is enough")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(TOY, tmp_path_factory.mktemp("plain") / "run", quiet=True)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(WATCHED, tmp_path_factory.mktemp("watched") / "run", quiet=True)


def content(run: Path, name: str) -> bytes:
    return (run / name).read_bytes()


# ---- what they are told ----------------------------------------------------------------------------------------------


def test_callbacks_hear_every_moment_in_its_order(plain: Path, tmp_path: Path) -> None:
    listener = Listener()
    run = sbtrpo.train(WATCHED.replace(total_steps=400), tmp_path / "run", quiet=True, callbacks=[listener])
    epochs = [("begin", 0), ("rollout", 0), ("update", 0), ("end", 1), ("begin", 1), ("rollout", 1), ("update", 1)]
    assert listener.heard == [("start", 0), *epochs, ("evaluation", 2), ("end", 2), ("stop", 2)]
    again = Listener()
    sbtrpo.resume(run, quiet=True, total_steps=600, callbacks=[again])
    assert again.heard == [("start", 2), ("begin", 2), ("rollout", 2), ("update", 2), ("end", 3), ("stop", 3)]
    assert content(plain, "metrics.csv").startswith(content(run, "metrics.csv"))


def test_numbers_that_a_callback_adds_are_columns(tmp_path: Path) -> None:
    class Widest(Callback):
        def on_update(self, run: Run, diagnostics: dict[str, float]) -> None:
            diagnostics["largest_weight"] = float(max(tensor.abs().max() for tensor in run.policy.params))

    run = sbtrpo.train(TOY.replace(total_steps=400), tmp_path / "run", quiet=True, callbacks=[Widest()])
    assert (RunFolder.open(run).metrics()["largest_weight"] > 0).tolist() == [True, True]
    with pytest.raises(ValueError, match=r"metrics.csv and its next row differ in largest_weight; .* these callbacks"):
        sbtrpo.resume(run, quiet=True, total_steps=600)
    assert RunFolder.open(run).is_finished
    sbtrpo.resume(run, quiet=True, total_steps=600, callbacks=Widest())
    assert len(RunFolder.open(run).metrics()["largest_weight"]) == 3


def test_a_change_to_the_rollout_reaches_the_update(plain: Path, tmp_path: Path) -> None:
    class NoReward(Callback):
        def on_rollout(self, run: Run, rollout: Rollout) -> None:
            rollout.signals[0] = 0

    run = sbtrpo.train(TOY.replace(total_steps=400), tmp_path / "run", quiet=True, callbacks=[NoReward()])
    ours, theirs = (RunFolder.open(path).metrics() for path in (run, plain))
    assert ours["reward"][0] == theirs["reward"][0]  # episodes are counted as they were
    assert ours["gradient_norm_r"][0] == 0 < theirs["gradient_norm_r"][0]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("epoch", 77.0, "a callback reports epoch, which metrics.csv has already; give it another name"),
        ("reward", 1.0, "a callback reports reward, which"),
        ("kl", 0.0, "a callback reports kl, which"),
        ("log_std", 1.0, "a callback reports log_std, which"),
        ("two\nlines", 1.0, r"a callback reports 'two\\nlines', which cannot be the name of a column"),
        (3, 1.0, "a callback reports 3, which cannot be the name of a column"),
        ("mine", "much", "numbers that a callback adds to diagnostics are floats, got {'mine': 'much'}"),
        ("mine", torch.zeros(2), "numbers that a callback adds to diagnostics are floats"),
    ],
)
def test_numbers_of_a_callback_take_no_other_column_and_are_numbers(
    name: Any, value: Any, sentence: str, plain: Path, tmp_path: Path
) -> None:
    class Gives(Callback):
        def on_update(self, run: Run, diagnostics: dict[str, float]) -> None:
            diagnostics[name] = value

    with pytest.raises(UserError, match=sentence):
        sbtrpo.train(TOY, tmp_path / "run", quiet=True, callbacks=Gives())
    sbtrpo.resume(tmp_path / "run", quiet=True)
    assert content(tmp_path / "run", "metrics.csv") == content(plain, "metrics.csv")


def test_what_a_callback_takes_away_is_reported_all_the_same(plain: Path, tmp_path: Path) -> None:
    class Takes(Callback):
        def on_update(self, run: Run, diagnostics: dict[str, float]) -> None:
            diagnostics.clear()

    run = sbtrpo.train(TOY, tmp_path / "run", quiet=True, callbacks=Takes())
    assert content(run, "metrics.csv") == content(plain, "metrics.csv")


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (Listener, r"callbacks are objects, and Listener is a class; write Listener\(\)"),
        (None, "a callback derives from sbtrpo.Callback, which None does not"),
        ([Listener], r"callbacks are objects, and Listener is a class; write Listener\(\)"),
        ([print], r"a callback derives from sbtrpo.Callback, which .*print.* does not"),
    ],
)
def test_what_is_no_callback_is_told_before_anything_is_written(
    callbacks: Any, sentence: str, plain: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        sbtrpo.train(TOY, tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=sentence):
        sbtrpo.resume(plain, callbacks=callbacks)


def test_what_a_callback_raises_is_raised_and_its_epoch_comes_again(plain: Path, tmp_path: Path) -> None:
    class Breaks(Callback):
        def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
            if run.epoch == 3:
                raise RuntimeError("this one breaks")

    with pytest.raises(RuntimeError, match="this one breaks"):
        sbtrpo.train(TOY, tmp_path / "run", quiet=True, callbacks=[Breaks()])
    listener = Listener()
    sbtrpo.resume(tmp_path / "run", quiet=True, callbacks=[listener])
    assert listener.heard[0] == ("start", 2)
    assert content(tmp_path / "run", "metrics.csv") == content(plain, "metrics.csv")


# ---- evaluations -----------------------------------------------------------------------------------------------------


def test_evaluations_leave_the_run_as_it_is(plain: Path, watched: Path) -> None:
    assert content(watched, "metrics.csv") == content(plain, "metrics.csv")
    assert not (plain / "evaluations.csv").exists()
    rows = RunFolder.open(watched).evaluations()
    assert rows["epoch"].tolist() == [2, 4, 6]
    assert rows["steps"].tolist() == [400, 800, 1200]
    assert (rows["episodes"] == 10).all()
    assert ((rows["safety_low"] <= rows["safety_probability"]) & (rows["safety_probability"] <= 1)).all()


def test_an_evaluation_is_that_of_the_command_in_the_same_worlds(watched: Path) -> None:
    seed = int(np.random.SeedSequence(TOY.seed, spawn_key=(1,)).generate_state(1)[0])
    last = evaluate(watched, episodes=10, seed=seed)
    rows = RunFolder.open(watched).evaluations()
    assert {name: values[-1] for name, values in rows.items() if name in last.numbers()} == last.numbers()


def test_a_run_on_the_physics_engine_is_evaluated_too(tmp_path: Path) -> None:
    config = TrainConfig(num_envs=2, steps_per_epoch=200, total_steps=400, constraints=("each",), seed=3)
    plain = sbtrpo.train(config, tmp_path / "plain", quiet=True)
    run = sbtrpo.train(config.replace(evaluate_every=1, evaluate_episodes=2), tmp_path / "run", quiet=True)
    assert content(run, "metrics.csv") == content(plain, "metrics.csv")
    rows = RunFolder.open(run).evaluations()
    assert rows["epoch"].tolist() == [1, 2]
    assert {"cost_hazards", "safety_hazards"} <= rows.keys()


@pytest.mark.filterwarnings("ignore::sbtrpo.errors.Alarm")
@pytest.mark.parametrize("faulted", ["unsafe", "apart"])
def test_an_evaluation_of_which_faults_leave_nothing_does_not_end_the_run(faulted: str, tmp_path: Path) -> None:
    """The environment raises in every second episode, and among them is the only one of these evaluations."""
    worlds = (np.random.SeedSequence(seed, spawn_key=(1,)).generate_state(1)[0] for seed in itertools.count())
    seed = next(seed for seed, first in enumerate(worlds) if episode_seed(int(first), 0, 0) % 2 == 0)
    small = {"num_envs": 2, "threads": 1, "steps_per_epoch": 100, "total_steps": 200, "hidden": (8,)}
    config = TrainConfig(task=name_of("raise"), seed=seed, faulted=faulted, **small)
    listener = Heard()
    run = sbtrpo.train(
        config.replace(evaluate_every=1, evaluate_episodes=1), tmp_path / "run", quiet=True, callbacks=[listener]
    )
    folder = RunFolder.open(run)
    assert folder.metrics()["faulted_episodes"].min() > 0
    if faulted == "apart":
        assert not folder.evaluations()
        assert not listener.faulted
    else:
        assert folder.evaluations()["faulted_episodes"].tolist() == listener.faulted == [1, 1]
        assert folder.evaluations()["safety_probability"].tolist() == [0, 0]
    plain = sbtrpo.train(config, tmp_path / "plain", quiet=True)
    assert content(run, "metrics.csv") == content(plain, "metrics.csv")


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (RunFolder, "log_epoch", 4),
        (RunFolder, "log_evaluation", 2),
        (Recorder, "_save", 1),
        (CheckpointStore, "save", 2),
        (RunFolder, "finish", 1),
    ],
    ids=["before an evaluation", "after one", "before a checkpoint", "after one", "before the end"],
)
def test_a_killed_run_has_the_evaluations_of_one_that_never_stopped(
    owner: type, name: str, call: int, watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(owner, name), []

    def killed(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        result = None if name in ("_save", "finish") else real(*arguments, **named)
        if len(calls) == call:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            sbtrpo.train(WATCHED.replace(checkpoint_every=3), tmp_path / "run", quiet=True)
    sbtrpo.resume(tmp_path / "run", quiet=True)
    for table in ("metrics.csv", "evaluations.csv"):
        assert content(tmp_path / "run", table) == content(watched, table)


def test_damage_to_evaluations_is_told_and_their_loss_too(
    watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sbtrpo.train(WATCHED.replace(total_steps=400), tmp_path / "run", quiet=True)
    table = tmp_path / "run" / "evaluations.csv"
    whole = table.read_text()
    table.write_text(whole.replace(",10,", ",11,"))
    with pytest.raises(UserError, match=r"evaluations.csv is damaged: .* or delete it and go on without"):
        sbtrpo.resume(tmp_path / "run", total_steps=800)
    table.unlink()
    sbtrpo.resume(tmp_path / "run", total_steps=800)
    assert "evaluations.csv is missing: its rows up to epoch 2 are lost" in " ".join(capsys.readouterr().out.split())
    assert (
        content(tmp_path / "run", "evaluations.csv").splitlines()[1:]
        == content(watched, "evaluations.csv").splitlines()[2:3]
    )


def test_viewers_and_curves_have_the_evaluations(watched: Path, plain: Path, tmp_path: Path, own_curves: None) -> None:
    events = b"".join(path.read_bytes() for path in (watched / "tensorboard").iterdir())
    assert b"evaluation/safety_probability" in events
    pictures = [RunFolder(run, TOY).draw_curves().read_bytes() for run in (watched, plain)]
    assert pictures[0] != pictures[1]


# ---- stopping --------------------------------------------------------------------------------------------------------


def test_a_callback_ends_a_run_which_is_then_finished(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sbtrpo.train(TOY, tmp_path / "run", callbacks=[StopAt(3)])
    assert "ended after epoch 3 of 6: it is enough" in capsys.readouterr().out
    assert json.loads(content(run, "summary.json"))["stopped"] == "it is enough"
    assert RunFolder.open(run).is_finished
    assert is_done(run, TOY)
    sbtrpo.resume(run)
    told = f"it ended after epoch 3 of 6: it is enough; to go on, sbtrpo resume {run} --total-steps 1200"
    assert told in " ".join(capsys.readouterr().out.split())
    assert RunFolder.open(run).last_epoch == 3
    sbtrpo.resume(run, quiet=True, total_steps=1_200)
    assert content(run, "metrics.csv") == content(plain, "metrics.csv")
    assert "stopped" not in json.loads(content(run, "summary.json"))


def test_a_run_that_is_stopped_before_its_first_epoch_is_finished_and_goes_on(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtOnce(Callback):
        def on_start(self, run: Run) -> None:
            run.stop("it is enough,\n  before it begins\n")

    run = sbtrpo.train(TOY, tmp_path / "runs" / "run", callbacks=AtOnce())
    assert "ended after epoch 0 of 6: it is enough, before it begins\n" in capsys.readouterr().out
    assert RunFolder.open(run).stopped == "it is enough, before it begins"
    assert is_done(run, TOY)
    assert main(["resume", str(run)]) == 0
    assert "it ended after epoch 0 of 6: it is enough, before it begins; to go on, " in capsys.readouterr().out
    with monkeypatch.context() as patch:  # killed before its first checkpoint
        patch.setattr(Recorder, "_save", lambda *_: signal.default_int_handler(signal.SIGINT, None))
        with pytest.raises(KeyboardInterrupt):
            sbtrpo.resume(run, quiet=True, total_steps=1_200)
    sbtrpo.resume(run, quiet=True)
    assert content(run, "metrics.csv") == content(plain, "metrics.csv")


def test_to_stop_a_run_when_all_is_saved_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Late(Callback):
        def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
            signal.raise_signal(signal.SIGINT)

        def on_stop(self, run: Run) -> None:
            run.stop("too late")

    run = sbtrpo.train(TOY, tmp_path / "run", callbacks=[Late()])
    assert f"stopped after epoch 1; continue with: sbtrpo resume {run}" in " ".join(capsys.readouterr().out.split())
    assert not RunFolder.open(run).is_finished


@pytest.fixture
def no_better(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From the first evaluation on, each is worth less."""
    real, count = Run.evaluate, []

    def worse(run: Run, *arguments: Any) -> Evaluation:
        count.append(run.epoch)
        found = real(run, *arguments)
        return Evaluation(**{**found.as_dict(), "safety_probability": 1.0, "safe_reward": 100.0 - run.epoch})

    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", worse)
        yield


@pytest.mark.usefixtures("no_better")
def test_a_run_that_becomes_no_better_stops_and_stops_there_again(tmp_path: Path) -> None:
    config = TOY.replace(evaluate_every=1, evaluate_episodes=2, patience=2)
    run = sbtrpo.train(config, tmp_path / "run", quiet=True)
    assert RunFolder.open(run).last_epoch == 3
    assert RunFolder.open(run).stopped == "2 evaluations in a row no better than that of epoch 1"
    (run / "summary.json").unlink()  # as a kill before the end leaves it
    sbtrpo.resume(run, quiet=True)
    assert RunFolder.open(run).last_epoch == 3
    sbtrpo.resume(run, quiet=True, total_steps=1_200)  # it begins to count anew
    assert RunFolder.open(run).last_epoch == 6
    assert RunFolder.open(run).stopped == ""


@pytest.mark.usefixtures("no_better")
def test_a_learner_that_stops_early_leaves_its_pack_to_the_others(plain: Path, tmp_path: Path) -> None:
    patient = WATCHED.replace(evaluate_every=1, evaluate_episodes=2)
    hasty = patient.replace(patience=2, seed=1000)
    runs = [tmp_path / "patient", tmp_path / "hasty"]
    for run, config in zip(runs, (patient, hasty), strict=True):
        RunFolder.create(run, config).close()
    assert train_pack(runs) == []
    assert content(runs[0], "metrics.csv") == content(plain, "metrics.csv")
    assert [RunFolder.open(run).last_epoch for run in runs] == [6, 3]
    assert all(is_done(run, RunFolder.open(run).config) for run in runs)
    assert "ended after epoch 3 of 6: 2 evaluations in a row" in (runs[1] / LOG).read_text()


def test_evaluations_in_a_pack_are_those_of_a_run_alone(watched: Path, tmp_path: Path) -> None:
    runs = [tmp_path / "0", tmp_path / "1000"]
    for run in runs:
        RunFolder.create(run, WATCHED.replace(seed=int(run.name))).close()
    assert train_pack(runs) == []
    assert content(runs[0], "evaluations.csv") == content(watched, "evaluations.csv")


def test_patience_without_evaluations_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ToyCorridor-v0", "--patience", "3"]) == 2
    assert "patience counts evaluations, and there are none; give evaluate_every" in capsys.readouterr().err
    with pytest.raises(UserError, match="set evaluate_every, such as 25"):
        sbtrpo.train(TOY, tmp_path / "run", quiet=True, callbacks=[EarlyStopping(3)])


@pytest.mark.parametrize(
    ("patience", "sentence"),
    [
        (1.5, "patience must be a whole number, got 1.5"),
        ("8", "patience must be a whole number, got '8'"),
        (0, "patience must be at least 1, got 0"),
        (-2, "patience must be at least 1, got -2"),
    ],
)
def test_a_patience_that_cannot_be_is_told(patience: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        EarlyStopping(patience)


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "callbacks.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    run = names["run"]
    assert RunFolder.open(run).stopped == "safe in 9 of 10 episodes"
    assert "entropy" in RunFolder.open(run).metrics()
