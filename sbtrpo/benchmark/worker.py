"""A worker: a process that trains one run, or a pack of them, and then ends.

Its standard input is a line of JSON, the `Job`, and then stays open for as long as its parent lives: when the parent
dies, even by kill -9, the worker finishes its epoch, saves and stops, so that nobody trains behind anyone's back.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.states import FAILURE, LOG, is_done
from sbtrpo.config import TrainConfig
from sbtrpo.config.tasks import is_task_file
from sbtrpo.errors import alarms_in_a_line
from sbtrpo.files import WINDOWS
from sbtrpo.runs.claims import Busy
from sbtrpo.runs.folder import RunFolder, method_file

BUSY = 75
"""Exit status where others work on all runs of the job."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """What a worker has to do."""

    root: Path
    runs: tuple[TrainConfig, ...]
    """One run, or several that fit into a pack."""
    threads: int = 1
    """Of the simulator, where a run's settings leave that open."""

    def to_json(self) -> str:
        """One line, which means the same in any working directory."""
        runs = [{**config.given, **_placed(config)} for config in self.runs]
        return json.dumps({"root": str(self.root), "runs": runs, "threads": self.threads})

    @classmethod
    def from_json(cls, line: str) -> Self:
        """What `to_json` wrote."""
        content = json.loads(line)
        runs = tuple(TrainConfig(**given) for given in content["runs"])
        return cls(Path(content["root"]), runs, int(content["threads"]))

    def paths(self) -> list[Path]:
        """The folders of its runs."""
        return [run_path(self.root, config) for config in self.runs]


def _placed(config: TrainConfig) -> dict[str, str]:
    """The method, the task and the start of a run that are in files, by the files' absolute paths."""
    file = method_file(config)
    placed = {} if file is None else {"algo": f"{file.resolve()}:{config.algo.rpartition(':')[2]}"}
    if is_task_file(config.task):
        placed["task"] = str(Path(config.task).resolve())
    return placed if config.init_from is None else {**placed, "init_from": str(Path(config.init_from).resolve())}


def environment() -> dict[str, str]:
    """A worker's environment: one thread for linear algebra, and a log in UTF-8.

    The workers beside it take the other cores; and as sums depend on how they are split among threads, runs give the
    same numbers whatever the number of workers. The simulator's threads, which change nothing, are the job's.
    """
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONIOENCODING": "utf-8"}


def work(job: Job) -> int:
    """Train a job's runs; returns the exit status."""
    from sbtrpo.benchmark.pack import train_pack
    from sbtrpo.learning import training  # here: a worker that has nothing to do need not import torch

    ready: list[Path] = []
    busy = False
    for config, run in zip(job.runs, job.paths(), strict=True):
        if is_done(run, config):  # by someone else, in the meantime
            continue
        placed = config.replace(threads=config.threads or job.threads, learner_threads=config.learner_threads or 1)
        try:
            with RunFolder.create(run, placed, resume=True):
                (run / FAILURE).unlink(missing_ok=True)
        except Busy as other:
            print(other, flush=True)
            busy = True
            continue
        ready += [] if is_done(run, config) else [run]
    if len(ready) > 1:
        return 1 if train_pack(ready) else 0
    if ready:
        training.resume(ready[0])
    return BUSY if busy and not ready else 0


def _stop_with_parent() -> None:
    """Ask this process to finish its epoch and stop, as Ctrl-C does, when standard input ends."""

    def watch() -> None:
        while os.read(0, 4096):  # not sys.stdin.read, which would hold a lock that Python needs when it ends
            pass
        if WINDOWS:  # where os.kill would end this process at once
            _thread.interrupt_main()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Do the job on standard input; returns the exit status."""
    faulthandler.enable()
    if hasattr(signal, "pthread_sigmask"):  # a node of Ray blocks the signal, for itself and for whom it starts
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    job = Job.from_json(sys.stdin.readline())
    _stop_with_parent()
    try:
        with alarms_in_a_line():
            return work(job)
    except KeyboardInterrupt:
        return 130
    except Busy as other:  # it came first, after all
        print(other, flush=True)
        return BUSY
    except Exception:
        traceback.print_exc()
        for path in job.paths()[1:]:  # the first one's log has this process's output
            with (path / LOG).open("a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        return 1


if __name__ == "__main__":
    sys.exit(main())
