"""No two processes write to one run, whatever machines are called, clocks say, and processes sleep through."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sbtrpo.config import TrainConfig
from sbtrpo.learning.rollout import Collector
from sbtrpo.learning.trainer import Trainer
from sbtrpo.learning.training import train
from sbtrpo.runs import checkpoint, claims
from sbtrpo.runs.claims import Busy, Claim, Lost, holder
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.tables import Episodes, Table

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=500, threads=1)
ELSEWHERE = {"boot": "another start of another machine"}  # with this one's name, and its number of the namespace


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of other machines are stale after half a second."""
    for name, seconds in (("BEAT_SECONDS", 0.05), ("STALE_SECONDS", 0.5), ("_LOOK_SECONDS", 0.01)):
        monkeypatch.setattr(claims, name, seconds)


def claim_of(folder: Path, pid: int, **differing: str) -> Path:
    """A claim as another process would leave it."""
    path = folder / f"claim-{pid}.json"
    path.write_text(json.dumps({**claims._here(), "pid": pid, "started": "17", **differing}))
    return path


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@contextlib.contextmanager
def touched(path: Path, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """A claim whose holder is alive, on a file server with this clock."""
    over = threading.Event()

    def touch() -> None:
        while not over.wait(0.05):
            os.utime(path, (clock(), clock()))

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def contents(folder: Path) -> dict[str, Any]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- this machine ----------------------------------------------------------------------------------------------------


def test_a_claimed_run_cannot_be_claimed_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Claim(run) as claim:
        claim.check()
        assert str(os.getpid()) in str(holder(run))
        with pytest.raises(Busy, match=rf"is being worked on by process {os.getpid()} .* or stop it"), Claim(run):
            pass
        assert holder(run) is not None
    assert holder(run) is None
    with Claim(run):
        pass
    assert not list(run.iterdir())


def test_of_many_who_want_a_run_at_once_no_two_get_it(tmp_path: Path) -> None:
    barrier, lock, inside = threading.Barrier(8), threading.Lock(), []

    def want() -> None:
        for _ in range(20):
            barrier.wait()
            with contextlib.suppress(Busy), Claim(tmp_path):
                assert lock.acquire(blocking=False)
                inside.append(1)
                lock.release()

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lock.locked()
    assert not list(tmp_path.iterdir())


def test_the_claim_of_a_process_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    claim_of(tmp_path, dead_process())
    with Claim(tmp_path) as claim:
        assert list(tmp_path.iterdir()) == [claim._path]


def test_a_process_that_has_ended_and_was_not_waited_for_is_gone(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    claim_of(tmp_path, process.pid)
    with Claim(tmp_path):
        pass
    process.communicate()


def test_another_process_with_the_number_of_the_holder_does_not_hold_its_claim(tmp_path: Path) -> None:
    claim_of(tmp_path, os.getpid(), started="1")
    assert holder(tmp_path) is None
    with Claim(tmp_path):
        pass


def test_a_living_process_of_this_machine_holds_its_claim_whether_it_touches_it_or_not(tmp_path: Path) -> None:
    path = claim_of(tmp_path, os.getpid(), started=claims._started(os.getpid()))
    os.utime(path, (0, 0))
    assert holder(tmp_path) is not None
    with pytest.raises(Busy), Claim(tmp_path):
        pass


def test_looking_changes_nothing(tmp_path: Path) -> None:
    old = claim_of(tmp_path, dead_process(), **ELSEWHERE)
    os.utime(old, (0, 0))
    claim_of(tmp_path, dead_process())
    before, changed = contents(tmp_path), tmp_path.stat().st_mtime_ns
    assert holder(tmp_path) is None
    assert (contents(tmp_path), tmp_path.stat().st_mtime_ns) == (before, changed)


# ---- other machines --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
def test_a_clone_of_this_machine_keeps_its_runs(tmp_path: Path) -> None:
    """It has the same name and the same number of the namespace, and processes that are not seen from here."""
    path = claim_of(tmp_path, dead_process(), **ELSEWHERE)
    with touched(path):
        assert holder(tmp_path) is not None
        with pytest.raises(Busy), Claim(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("hasty")
def test_the_claim_of_another_machine_is_stale_once_nobody_has_touched_it_for_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = claim_of(tmp_path, os.getpid(), host="elsewhere", **ELSEWHERE)
    began = time.monotonic()
    with Claim(tmp_path):
        assert time.monotonic() - began >= claims.STALE_SECONDS
        assert not path.exists()
    assert "on elsewhere; waiting" in capsys.readouterr().err


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_jumps_takes_no_run_and_keeps_none(tmp_path: Path, hours: int) -> None:
    path = claim_of(tmp_path, dead_process(), **ELSEWHERE)
    began = time.monotonic()

    def clock() -> float:
        return time.time() + (3600 * hours if time.monotonic() > began + 0.2 else 0)

    with touched(path, clock):
        while abs(path.stat().st_mtime - time.time()) < 3600:
            with pytest.raises(Busy), Claim(tmp_path):
                pass
        with pytest.raises(Busy), Claim(tmp_path):
            pass
    with Claim(tmp_path):
        assert not path.exists()


@pytest.mark.usefixtures("hasty")
def test_whoever_waits_for_a_stale_claim_holds_others_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim_of(tmp_path, dead_process(), **ELSEWHERE)
    first = Claim(tmp_path)
    monkeypatch.setattr(claims, "_here", lambda: {"host": "a", "boot": "first", "namespace": "n"})
    thread = threading.Thread(target=first.take)
    thread.start()
    while "waiting" not in capsys.readouterr().err:  # it has seen the stale claim, and no other
        time.sleep(0.01)
    monkeypatch.setattr(claims, "_here", lambda: {"host": "a", "boot": "second", "namespace": "n"})
    with pytest.raises(Busy), Claim(tmp_path):
        pass
    thread.join()
    first.check()
    first.release()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": -1}'])
def test_a_claim_that_says_nothing_counts_while_it_is_touched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "claim-new.json"
    path.write_text(content)
    with touched(path), pytest.raises(Busy), Claim(tmp_path):
        pass
    with Claim(tmp_path):
        assert not path.exists()


@pytest.mark.parametrize("pid", ["x", None, 10**30, True])
def test_a_claim_with_a_strange_number_is_not_known_to_be_gone(tmp_path: Path, pid: Any) -> None:
    path = claim_of(tmp_path, dead_process())
    path.write_text(json.dumps({**claims._here(), "pid": pid}))
    sight = claims._look(path)
    assert sight is not None
    assert sight.alive() is not True or pid is True


@pytest.mark.usefixtures("hasty")
def test_without_a_boot_id_the_touch_alone_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_here", lambda: {"host": "a", "boot": "", "namespace": ""})
    with Claim(tmp_path), pytest.raises(Busy), Claim(tmp_path):
        pass
    path = claim_of(tmp_path, dead_process())
    began = time.monotonic()
    with Claim(tmp_path):
        assert time.monotonic() - began >= claims.STALE_SECONDS
        assert not path.exists()


# ---- holders ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
def test_a_holder_keeps_its_claim_fresh(tmp_path: Path) -> None:
    with Claim(tmp_path) as claim:
        os.utime(claim._path, (0, 0))
        deadline = time.monotonic() + 60
        while not claim._path.stat().st_mtime and time.monotonic() < deadline:
            time.sleep(0.01)
        assert claim._path.stat().st_mtime > 0


def test_a_holder_that_was_overtaken_is_told_before_it_writes(tmp_path: Path) -> None:
    with Claim(tmp_path) as claim:
        claim._path.unlink()
        with pytest.raises(Lost, match="another process has taken over"):
            claim.check()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Collector, "collect"),
        (Trainer, "learn"),
        (Table, "append"),
        (Episodes, "flush"),
        (checkpoint, "write_synced"),
        (checkpoint, "sync_folder"),
    ],
)
def test_a_run_that_was_taken_over_at_any_moment_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    real, before = getattr(owner, name), dict[str, bytes]()

    def sleeps_after(*arguments: Any) -> Any:
        result = real(*arguments)
        if RunFolder.open(tmp_path).last_epoch >= 2 and not before:
            next(tmp_path.glob(claims.CLAIMS)).unlink()
            before.update(contents(tmp_path))
        return result

    monkeypatch.setattr(owner, name, sleeps_after)
    with pytest.raises(Lost):
        train(TOY, tmp_path, quiet=True)
    assert before
    assert contents(tmp_path) == before


SLEEPER = """
import json, os, signal, sys
import sbtrpo
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs import claims

here = claims._here()
claims._here = lambda: {**here, "boot": "another machine"}
learn = Trainer.learn

def sleeps_after(trainer, *arguments):
    epoch = learn(trainer, *arguments)
    if trainer.epoch == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    return epoch

Trainer.learn = sleeps_after
sbtrpo.train(sbtrpo.TrainConfig(**json.loads(sys.argv[2])), sys.argv[1], quiet=True)
"""


@pytest.mark.usefixtures("hasty")
def test_a_process_that_slept_while_its_run_was_taken_over_goes_without_a_write(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLEEPER, str(tmp_path), json.dumps(dict(TOY.given))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert process.poll() is None, process.communicate()[1]
    try:
        with Claim(tmp_path) as claim:
            before = contents(tmp_path)
            process.send_signal(signal.SIGCONT)
            _, errors = process.communicate()
            claim.check()
            assert contents(tmp_path) == before
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert "another process has taken over" in errors
