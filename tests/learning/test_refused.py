"""A run that a callback refuses is as if it had not been begun, or as it was before."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import sbtrpo
from sbtrpo import Callback, EarlyStopping, TrainConfig
from sbtrpo.errors import UserError
from sbtrpo.files import remove
from sbtrpo.learning.callbacks import Run
from sbtrpo.runs.folder import RunFolder

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=1_200, hidden=(8,))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(TOY, tmp_path_factory.mktemp("plain") / "run", quiet=True)


def numbers(run: Path) -> bytes:
    return (run / "metrics.csv").read_bytes()


class Refuses(Callback):
    """Wants no run of its folder."""

    def on_start(self, run: Run) -> None:
        assert (run.path / "config.toml").exists()
        raise UserError("not this one")


@pytest.mark.parametrize("there", [False, True], ids=["a new folder", "an empty one"])
def test_a_run_that_a_callback_refuses_leaves_nothing_behind(there: bool, plain: Path, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    run = tmp_path / "run"
    if there:
        run.mkdir()
    for config in (TOY, TOY.replace(algo=f"{example}:WaryTRPO")):
        with pytest.raises(UserError, match="not this one"):
            sbtrpo.train(config, run, quiet=True, callbacks=Refuses())
        assert run.exists() == there
        assert not there or not list(run.iterdir())
    sbtrpo.train(TOY, run, quiet=True)
    assert numbers(run) == numbers(plain)


def test_a_run_that_is_refused_leaves_no_folders_above_it_but_what_others_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writes(Callback):
        def on_start(self, run: Run) -> None:
            (run.path / "mine.txt").write_text("of a callback")

    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="not this one"):
        sbtrpo.train(TOY, quiet=True, callbacks=Refuses())
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="not this one"):
        sbtrpo.train(TOY, "runs/run", quiet=True, callbacks=[Writes(), Refuses()])
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "run", "mine.txt"]
    with pytest.raises(FileExistsError, match="run exists and is not empty; choose another --out"):
        sbtrpo.train(TOY, "runs/run", quiet=True)


def test_a_kill_while_a_refusal_is_taken_back_leaves_a_run(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: Path) -> None:
        if file.name == "run.json":
            signal.default_int_handler(signal.SIGINT, None)
        remove(file)

    with monkeypatch.context() as patch:
        patch.setattr("sbtrpo.runs.folder.remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sbtrpo.train(TOY, tmp_path / "run", quiet=True, callbacks=Refuses())
    sbtrpo.resume(tmp_path / "run", quiet=True)
    assert numbers(tmp_path / "run") == numbers(plain)


def test_a_run_that_a_callback_refuses_to_go_on_with_stays_as_it_is(plain: Path, tmp_path: Path) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=400), tmp_path / "run", quiet=True)
    before = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    with pytest.raises(UserError, match="set evaluate_every, such as 25"):
        sbtrpo.resume(run, quiet=True, total_steps=1_200, callbacks=EarlyStopping(3))
    assert {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()} == before
    assert RunFolder.open(run).is_finished
    sbtrpo.resume(run, quiet=True, total_steps=1_200)
    assert numbers(run) == numbers(plain)
