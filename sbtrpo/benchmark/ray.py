"""Jobs on a Ray cluster: each is a Ray task, and Ray starts it again on another node when its node fails.

The runs' folder must be on storage that all nodes see. A task that is started again resumes from the checkpoints in
it. The claim on the run (`sbtrpo.runs.claims`) ensures that the old and the new task never both work on it.
"""

from __future__ import annotations

import importlib
import subprocess
from typing import Any

from typing_extensions import override

from sbtrpo.benchmark.local import describe_exit, start_worker, stop_worker
from sbtrpo.benchmark.schedule import Ended, Launcher
from sbtrpo.benchmark.worker import Job

NODE_RETRIES = 20
"""How often Ray restarts a task whose node or process died. This does not count as a failure of the run."""
_AHEAD = 2  # jobs handed to Ray for each one that can run now: an autoscaler then sees that more are wanted


def train_on_node(line: str) -> int:
    """What a Ray task does: start a worker process for the job and return its exit status."""
    job = Job.from_json(line)
    if not job.root.is_dir():
        raise FileNotFoundError(f"this node does not see {job.root}; put the runs on storage that all nodes share")
    process = start_worker(job)
    try:
        while True:
            try:
                return process.wait(timeout=1.0)  # returns to Python, where Ray's cancelling takes effect
            except subprocess.TimeoutExpired:
                continue
    except KeyboardInterrupt:  # cancelled
        stop_worker(process)
        return process.wait()


class RayLauncher(Launcher):
    """Jobs as Ray tasks.

    Args:
        address: of the cluster; "auto" finds the one that this machine belongs to, "local" starts one here.
        threads: cores of each job.
    """

    def __init__(self, address: str = "auto", threads: int = 0) -> None:
        self._ray = _import_ray()
        self._owned = not self._ray.is_initialized()
        if self._owned:
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="warning")
            except ConnectionError as error:
                raise ConnectionError(
                    f"there is no Ray cluster at {address!r} ({error}); docs/cluster.md says how to start one"
                ) from error
        self.threads = max(1, threads)
        self._task = self._ray.remote(train_on_node).options(
            num_cpus=self.threads, max_retries=NODE_RETRIES, retry_exceptions=False
        )
        self._jobs: dict[Any, Job] = {}

    @property
    @override
    def slots(self) -> int:
        return _AHEAD * max(1, self._capacity())

    @property
    @override
    def note(self) -> str:
        nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        return f"{self._capacity()} at a time, {self.threads} cores each, on {nodes} Ray nodes"

    def _capacity(self) -> int:
        """How many jobs the cluster can run at once; it may grow or shrink."""
        return int(self._ray.cluster_resources().get("CPU", 0)) // self.threads

    @override
    def start(self, job: Job) -> None:
        self._jobs[self._task.remote(job.to_json())] = job

    @override
    def wait(self, seconds: float) -> list[Ended]:
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=seconds) if self._jobs else ([], [])
        return [self._ended(task, self._jobs.pop(task)) for task in ready]

    def _ended(self, task: Any, job: Job) -> Ended:
        try:
            status = int(self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error  # the error of the task, without its traceback
            return Ended(job, 1, f"{type(cause).__name__}: {' '.join(str(cause).split())}")
        return Ended(job, status, describe_exit(status))

    @override
    def stop(self) -> None:
        for task in self._jobs:
            self._ray.cancel(task, force=False)  # a task that has not begun never will

    @override
    def kill(self) -> None:
        for task in self._jobs:
            self._ray.cancel(task, force=True)  # its worker process still finishes its epoch and saves

    def close(self) -> None:
        """Leave the cluster."""
        if self._owned:
            self._ray.shutdown()


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ValueError("the launcher 'ray' needs the package ray: pip install 'sbtrpo[ray]'") from error
