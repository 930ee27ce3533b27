"""From a plan to finished runs: what is done is skipped, what was interrupted resumes, what fails is tried again.

The scheduler knows runs by their folders and jobs by a `Launcher`, which starts them on this machine or on a cluster.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from sbtrpo.benchmark.pack import pack_key
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.states import LOG, Failure, Progress, is_done, last_words, progress
from sbtrpo.benchmark.view import Row, View
from sbtrpo.benchmark.worker import BUSY, Job
from sbtrpo.config import TrainConfig
from sbtrpo.learning.training import interruptible
from sbtrpo.runs.claims import holder

Status = Literal["waiting", "running", "elsewhere", "done", "failed", "interrupted"]
REFRESH_SECONDS = 1.0
LOOK_ELSEWHERE_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """A job that is over."""

    job: Job
    status: int
    """Of its process."""
    error: str = ""
    """What the runs' logs may not say."""


class Launcher(Protocol):
    """Where jobs run."""

    threads: int
    """Of each job's simulator."""

    @property
    def slots(self) -> int:
        """How many jobs it takes at a time."""

    @property
    def note(self) -> str:
        """What it does, in a few words."""

    def start(self, job: Job) -> None:
        """Start a job."""

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that have ended; waits for one, up to so long."""

    def stop(self) -> None:
        """Ask all jobs to finish their epochs and save."""

    def kill(self) -> None:
        """End all jobs at once."""


@dataclass
class Run:
    """A run of the benchmark, and what is known of it."""

    config: TrainConfig
    path: Path
    status: Status = "waiting"
    attempts: int = 0
    error: str = ""
    first_epoch: int = 0
    """Where this benchmark command took it up."""
    progress: Progress = field(default_factory=Progress)

    @property
    def name(self) -> str:
        """Task, algorithm, seed and hash."""
        return "/".join(self.path.parts[-3:])


@dataclass(frozen=True)
class Result:
    """What a benchmark command came to."""

    runs: list[Run]

    def of(self, *status: Status) -> list[Run]:
        """The runs in such a state."""
        return [run for run in self.runs if run.status in status]

    @property
    def exit_status(self) -> int:
        """0 if every run is done, 1 if one failed, 130 if the command was interrupted before the end."""
        if self.of("failed"):
            return 1
        return 0 if len(self.of("done")) == len(self.runs) else 130


class Scheduler:
    """Brings the runs of a plan to their ends.

    Args:
        configs: the runs.
        root: the folder that holds them all.
        launcher: where they run.
        retries: how often a failed run is tried again.
        pack: how many runs share one simulator, where they fit.
        view: what one sees of it.
    """

    def __init__(
        self,
        configs: Iterable[TrainConfig],
        root: Path,
        launcher: Launcher,
        retries: int = 2,
        pack: int = 1,
        view: View | None = None,
    ) -> None:
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        if pack < 1:
            raise ValueError(f"pack must be at least 1, got {pack}; 1 gives every run its own simulator")
        self.root, self.launcher, self.retries, self.pack = root, launcher, retries, pack
        self.view = view or View(quiet=True)
        self.runs = [Run(config, run_path(root, config)) for config in configs]
        self._by_path = {run.path: run for run in self.runs}
        self._jobs = 0
        self._stopping = False
        self._begun = time.monotonic()
        self._looked_elsewhere = self._refreshed = 0.0

    def run(self) -> Result:
        """Run until all is done or failed, or to Ctrl-C; a second Ctrl-C does not wait for epochs to end."""
        self.root.mkdir(parents=True, exist_ok=True)
        for run in self.runs:
            run.progress = progress(run.path)
            run.first_epoch = run.progress.epoch
            if is_done(run.path, run.config):
                run.status = "done"
        self._announce()
        with self.view, interruptible() as interrupted:
            try:
                while self._unfinished():
                    if interrupted.is_set() and not self._stopping:
                        self._stop()
                    self._turn()
            except KeyboardInterrupt:  # the second one
                self.launcher.kill()
            except BaseException:
                self.launcher.kill()
                raise
            self._refresh()
        self._abandon()
        return Result(self.runs)

    # ---- one turn ------------------------------------------------------------------------------------------------

    def _unfinished(self) -> bool:
        waiting = 0 if self._stopping else sum(run.status in ("waiting", "elsewhere") for run in self.runs)
        return bool(self._jobs or waiting)

    def _turn(self) -> None:
        while not self._stopping and self._jobs < self.launcher.slots and (job := self._next_job()):
            self.launcher.start(job)
            self._jobs += 1
        for ended in self.launcher.wait(REFRESH_SECONDS):
            self._jobs -= 1
            for path in ended.job.paths():
                self._judge(self._by_path[path], ended)
        now = time.monotonic()
        if now - self._looked_elsewhere >= LOOK_ELSEWHERE_SECONDS:
            self._looked_elsewhere = now
            self._look_elsewhere()
        if now - self._refreshed >= REFRESH_SECONDS:
            self._refreshed = now
            self._refresh()

    def _next_job(self) -> Job | None:
        """The next waiting run, with others that fit into a pack with it; one that failed is tried again alone."""
        waiting = [run for run in self.runs if run.status == "waiting"]
        # Those that failed come last: what they failed of may be over by then.
        first = min(waiting, key=lambda run: run.attempts, default=None)
        if first is None:
            return None
        chosen = [first]
        if self.pack > 1 and not first.attempts and (key := pack_key(first.config)) is not None:
            fitting = [run for run in waiting if not run.attempts and _pack_key(run) == (key, first.progress.epoch)]
            chosen = fitting[: self.pack]
        for run in chosen:
            run.status = "running"
        return Job(self.root, tuple(run.config for run in chosen), self.launcher.threads)

    def _judge(self, run: Run, ended: Ended) -> None:
        """What became of a run whose job is over: its folder tells."""
        run.progress = progress(run.path)
        if is_done(run.path, run.config):
            run.status = "done"
            self.view.say(f"done: {run.name}, reward {run.progress.reward:.2f}, cost {run.progress.cost:.2f}")
        elif ended.status == BUSY or holder(run.path) is not None:
            run.status = "elsewhere"
        elif self._stopping:
            run.status = "interrupted"
        else:
            self._failed(run, ended.error or last_words(run.path / LOG) or "it ended without a word")

    def _failed(self, run: Run, error: str) -> None:
        run.attempts += 1
        run.error = error
        if run.attempts <= self.retries:
            run.status = "waiting"
            self.view.say(f"failed, to be tried again: {run.name}: {error}")
        else:
            run.status = "failed"
            Failure(error, run.attempts).write(run.path)
            self.view.say(f"failed after {run.attempts} attempts: {run.name}: {error}")

    def _look_elsewhere(self) -> None:
        """What other benchmark commands on the same folder have come to; what they dropped is taken over."""
        for run in self.runs:
            if run.status == "elsewhere":
                run.progress = progress(run.path)
                if is_done(run.path, run.config):
                    run.status = "done"
                elif holder(run.path) is None:
                    run.status, run.first_epoch = "waiting", run.progress.epoch

    # ---- stopping ------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._stopping = True
        if self._jobs:
            self.view.say("stopping: running epochs are finished and saved; Ctrl-C again does not wait for that")
        self.launcher.stop()

    def _abandon(self) -> None:
        for run in self.runs:
            if run.status in ("waiting", "running", "elsewhere"):
                run.status = "interrupted"

    # ---- what one sees -------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        count = Counter(run.status for run in self.runs)
        begun = sum(run.status == "waiting" and run.first_epoch > 0 for run in self.runs)
        packed = f", packs of up to {self.pack}" if self.pack > 1 else ""
        self.view.say(
            f"{len(self.runs)} runs in {self.root}: {count['done']} done before, {begun} to resume,"
            f" {count['waiting'] - begun} to begin; {self.launcher.note}{packed}"
        )

    def _refresh(self) -> None:
        for run in self.runs:
            if run.status == "running":
                run.progress = progress(run.path)
        active = [run for run in self.runs if run.status == "running" and any(run.path.glob("claim-*.json"))]
        rows = [Row(r.name, r.progress.epoch, r.config.epochs, r.progress.reward, r.progress.cost) for r in active]
        counts: Counter[str] = Counter(run.status for run in self.runs)
        counts["waiting"] += counts["running"] - len(active)
        counts["running"] = len(active)
        self.view.update(rows, counts, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """At the speed so far; None before any epoch has ended."""
        mine = [run for run in self.runs if run.status not in ("elsewhere", "failed")]
        ahead = [run for run in mine if run.status != "done"]
        gained = sum((run.progress.epoch - run.first_epoch) * run.config.steps_per_epoch for run in mine)
        missing = sum((run.config.epochs - run.progress.epoch) * run.config.steps_per_epoch for run in ahead)
        return missing * (time.monotonic() - self._begun) / gained if gained > 0 else None


def _pack_key(run: Run) -> tuple[object, int]:
    """What runs of one pack share: their shape, and the epoch from which they go on."""
    return pack_key(run.config), run.progress.epoch


# ---- what was planned --------------------------------------------------------------------------------------------


def write_manifest(name: str, configs: Sequence[TrainConfig], root: Path) -> Path:
    """Put the list of a plan's runs beside them, so that one which never began is missed when they are collected."""
    paths = [run_path(root, config).relative_to(root).as_posix() for config in configs]
    content = (json.dumps({"plan": name, "runs": paths}, indent=1) + "\n").encode()
    path = root / "plans" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two commands may begin at once, with the same content for the same name.
    unfinished = path.with_name(f".{uuid.uuid4().hex[:12]}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return path
