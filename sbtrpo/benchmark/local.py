"""Jobs on this machine: each has its process, and a few run at a time."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

from typing_extensions import override

from sbtrpo.benchmark.schedule import Ended, Launcher
from sbtrpo.benchmark.states import LOG
from sbtrpo.benchmark.worker import Job, environment
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.files import naming

_POLL_SECONDS = 0.1


def start_worker(job: Job) -> subprocess.Popen[bytes]:
    """Start a process that does a job; its output is added to the log of the job's first run."""
    paths = job.paths()
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)
        pack = "" if path == paths[0] else f" in a pack, whose messages are in {paths[0] / LOG}"
        with naming(path / LOG), (path / LOG).open("a", encoding="utf-8") as log:
            log.write(f"---- {datetime.now(UTC).isoformat(timespec='seconds')} on {platform.node()}{pack}\n")
    with (paths[0] / LOG).open("ab") as log_bytes:
        process = subprocess.Popen(
            [sys.executable, "-m", "sbtrpo.benchmark.worker"],
            stdin=subprocess.PIPE,
            stdout=log_bytes,
            stderr=subprocess.STDOUT,
            env=environment(),
            # Ctrl-C in the terminal reaches the scheduler alone, which tells the workers: here, and on Windows.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    assert process.stdin is not None
    try:
        process.stdin.write(f"{job.to_json()}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:  # it ended at once; its exit status says so
        pass
    return process


def stop_worker(process: subprocess.Popen[bytes]) -> None:
    """Ask a worker to finish its epoch, save and stop: its standard input ends, which every system can do."""
    if process.stdin is not None:
        process.stdin.close()


class LocalLauncher(Launcher):
    """Worker processes on this machine.

    Args:
        workers: how many processes run at a time; never more than there are cores.
        threads: of each worker's simulator; 0 shares the cores out.
    """

    slots: int = 1
    note: str = ""

    def __init__(self, workers: int, threads: int = 0) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if threads < 0:
            raise ValueError(f"threads must be at least 0, got {threads}; 0 shares the cores out")
        cores = available_cores()
        self.slots = min(workers, max(1, cores // max(1, threads)))
        self.threads = threads or max(1, cores // self.slots)
        self.note = f"{self.slots} at a time, {self.threads} thread{'s' * (self.threads > 1)} each, on {cores} cores"
        if self.slots < workers:
            self.note += f" ({workers} workers would crowd them)"
        self._running: list[tuple[Job, subprocess.Popen[bytes]]] = []

    @override
    def start(self, job: Job) -> None:
        self._running.append((job, start_worker(job)))

    @override
    def wait(self, seconds: float) -> list[Ended]:
        deadline = time.monotonic() + seconds
        while True:
            over = [(job, process) for job, process in self._running if process.poll() is not None]
            if over or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        self._running = [pair for pair in self._running if pair not in over]
        for _, process in over:
            stop_worker(process)
        return [Ended(job, process.returncode, describe_exit(process.returncode)) for job, process in over]

    @override
    def stop(self) -> None:
        for _, process in self._running:
            stop_worker(process)

    @override
    def kill(self) -> None:
        for _, process in self._running:
            process.kill()


def describe_exit(status: int) -> str:
    """Which signal ended a process; empty if none did, because then its log says why it ended."""
    if status >= 0:
        return ""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = "; was there enough memory?" if -status == signal.SIGKILL else ""
    return f"its process was ended by {name}{hint}"
