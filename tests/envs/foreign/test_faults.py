"""What is told of worlds that fail, and Ctrl-C while one hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from sbtrpo import Callback, TrainConfig, cli, train
from sbtrpo.envs.foreign.environment import UnfitEnvironment
from sbtrpo.envs.foreign.pool import EnvPool, make_env_pool
from sbtrpo.envs.foreign.workers import Fault
from sbtrpo.errors import alarms_in_a_line
from sbtrpo.learning.callbacks import Run
from sbtrpo.learning.interrupts import interruptible
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.folder import RunFolder
from tests.envs.foreign.test_pool import WALK, name_of, play, pool_of
from tests.processes import alive


def raised(message: str) -> Fault:
    try:
        raise KeyError(message)
    except KeyError as error:
        return Fault.of(error)


def test_the_first_fault_is_told_with_its_traceback_and_others_are_counted() -> None:
    with pool_of(name_of("raise"), 4) as pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool.reset()
        while pool.faults < 10:
            pool.step(np.zeros((4, 1)))
    first, *others = (str(warning.message) for warning in caught)
    sentence, *trace = first.splitlines()
    assert sentence.endswith("failed and begins anew: ZeroDivisionError: as promised")
    assert trace[-1] == "ZeroDivisionError: as promised"
    assert 'raise ZeroDivisionError("as promised")' in trace[-2]
    files = [line for line in trace if line.lstrip().startswith("File")]
    assert files
    assert all("worlds.py" in line for line in files)
    assert others == [f"worlds of {name_of('raise')} failed 10 times so far because of: ZeroDivisionError: as promised"]


def test_faults_of_one_place_are_alike_whatever_they_say() -> None:
    with pool_of(WALK, 1, threads=1) as pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(100):
            pool._stillborn[:] = 0
            pool._count_fault(0, raised(f"number {k}"))
        assert [str(warning.message).splitlines()[0].split("'")[1] for warning in caught] == [
            "number 0", "number 9", "number 99",
        ]  # fmt: skip
        assert pool.last_error == "KeyError: 'number 99'"


def test_the_command_line_shows_the_traceback_below_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with alarms_in_a_line(), warnings.catch_warnings():
        warnings.simplefilter("always")
        with pool_of(WALK, 1, threads=1) as pool:
            pool._count_fault(0, raised("lost"))
    sentence, *trace = capsys.readouterr().err.splitlines()
    assert sentence == f"sbtrpo: WARNING: a world of {WALK} failed and begins anew: KeyError: 'lost'"
    assert trace[-1] == "KeyError: 'lost'"


def test_what_a_first_step_raises_comes_with_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnfitEnvironment) as refusal:
        make_env_pool(name_of("always"), 1, threads=1)
    assert "worlds.py" in refusal.value.__notes__[0]
    flags = ["--num-envs", "1", "--steps-per-epoch", "8", "--total-steps", "8", "--out", str(tmp_path / "run")]
    assert cli.main(["train", name_of("always"), *flags]) == 2
    *trace, sentence = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"sbtrpo: {name_of('always')} fails in its first step: ZeroDivisionError")
    assert trace[-1] == "ZeroDivisionError: as promised"


def test_ctrl_c_is_answered_while_a_world_hangs() -> None:
    with pool_of(name_of("hang"), 4) as pool, interruptible(pool):
        pool.reset()
        pids = [worker._process.pid for worker in pool._workers]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt, match="did not answer, so that the running epoch is lost"):
            play(pool, np.zeros((10**6, 4, 1)))
        began = time.monotonic()
        pool.close()
        assert not any(alive(pid) for pid in pids)
        assert time.monotonic() - began < 60  # and not until the world has slept its ten minutes


def test_ctrl_c_is_answered_while_a_world_hangs_in_an_evaluation(tmp_path: Path) -> None:
    class Impatient(Callback):
        def on_update(self, run: Run, diagnostics: dict[str, float]) -> None:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    short = {"num_envs": 1, "threads": 1, "steps_per_epoch": 2, "total_steps": 2}  # worlds hang in their third step
    config = TrainConfig(task=name_of("hang"), **short, evaluate_every=1, evaluate_episodes=20)
    with pytest.raises(KeyboardInterrupt, match="did not answer, so that the running epoch is lost"):
        train(config, tmp_path / "run", quiet=True, callbacks=[Impatient()])
    assert not RunFolder.open(tmp_path / "run").is_summed_up


def test_the_time_that_a_world_is_given_is_a_setting_of_how_a_run_is_done() -> None:
    config = TrainConfig(task=WALK, num_envs=2, threads=1, steps_per_epoch=16, total_steps=16)
    impatient = config.replace(env_timeout=7.5)
    assert impatient.digest() == config.digest()
    pool = cast("EnvPool", Trainer(impatient).collector.pool)
    assert pool.timeout == 7.5
    pool.close()
