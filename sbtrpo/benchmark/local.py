"""Runs on this machine: a process for each, as many at a time as there are workers."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

from sbtrpo.benchmark.schedule import Ended
from sbtrpo.benchmark.states import LOG
from sbtrpo.benchmark.worker import Job, environment
from sbtrpo.envs.physics.cpu import available_cores

_POLL_SECONDS = 0.1


def start_worker(job: Job) -> subprocess.Popen[bytes]:
    """Start a process that does a job; its output is added to the log of the job's first run."""
    paths = job.paths()
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)
        beside = "" if path == paths[0] else f" in a pack, whose own messages are in {paths[0] / LOG}"
        with (path / LOG).open("a", encoding="utf-8") as log:
            log.write(f"---- {datetime.now(UTC).isoformat(timespec='seconds')} on {platform.node()}{beside}\n")
    with (paths[0] / LOG).open("ab") as log_bytes:
        process = subprocess.Popen(
            [sys.executable, "-m", "sbtrpo.benchmark.worker"],
            stdin=subprocess.PIPE,
            stdout=log_bytes,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,  # Ctrl-C in the terminal reaches the scheduler alone, which tells the workers
        )
    assert process.stdin is not None
    try:
        process.stdin.write(f"{job.to_json()}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:  # it ended at once; its exit status says so
        pass
    return process


class LocalLauncher:
    """Worker processes on this machine.

    Args:
        workers: how many at a time; never more than there are cores.
        threads: of each worker's simulator; 0 shares the cores out.
    """

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

    def start(self, job: Job) -> None:
        """Start a job."""
        self._running.append((job, start_worker(job)))

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that have ended; waits for one, up to so long."""
        deadline = time.monotonic() + seconds
        while True:
            ended = [(job, process) for job, process in self._running if process.poll() is not None]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        self._running = [pair for pair in self._running if pair not in ended]
        for _, process in ended:
            if process.stdin is not None:
                process.stdin.close()
        return [Ended(job, process.returncode, describe_exit(process.returncode)) for job, process in ended]

    def stop(self) -> None:
        """Ask all workers to finish their epochs and save."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End all workers at once; their runs go on from their last checkpoints another time."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for _, process in self._running:
            process.send_signal(number)


def describe_exit(status: int) -> str:
    """How a process ended, where its log may not say; empty if it will."""
    if status >= 0:
        return ""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = "; was there enough memory?" if -status == signal.SIGKILL else ""
    return f"its process was ended by {name}{hint}"
