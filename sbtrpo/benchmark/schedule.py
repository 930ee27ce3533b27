"""From a plan to finished runs: finished runs are skipped, interrupted ones resume, failed ones are tried again.

The scheduler reads the state of runs from their folders. A `Launcher` starts its jobs, here or on a cluster.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from sbtrpo.benchmark.pack import pack_key
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.states import LOG, Failure, Progress, is_done, last_words, progress
from sbtrpo.benchmark.view import BenchmarkView, Row
from sbtrpo.benchmark.worker import BUSY, Job
from sbtrpo.config import TrainConfig
from sbtrpo.files import write_atomically
from sbtrpo.learning.interrupts import interruptible
from sbtrpo.runs.claims import CLAIMS, holder

Status = Literal["waiting", "running", "elsewhere", "done", "failed", "interrupted"]
REFRESH_SECONDS = 1.0
LOOK_ELSEWHERE_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """A job that is over."""

    job: Job
    status: int
    """Exit status of its process."""
    error: str = ""
    """Why it ended, if the runs' logs may not say it."""


class Launcher(Protocol):
    """Starts jobs and tells which have ended."""

    threads: int
    """How many threads each job's simulator has."""

    @property
    def slots(self) -> int:
        """How many jobs it takes at a time."""

    @property
    def note(self) -> str:
        """How many jobs run at a time and where, in a few words."""

    def start(self, job: Job) -> None:
        """Start a job."""

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that have ended since the last call; waits at most `seconds` for one."""

    def stop(self) -> None:
        """Ask all jobs to finish their epochs and save."""

    def kill(self) -> None:
        """End all jobs now; their runs can resume from their last checkpoints."""


@dataclass
class PlannedRun:
    """A run of the plan, and what the scheduler knows of it."""

    config: TrainConfig
    path: Path
    status: Status = "waiting"
    attempts: int = 0
    error: str = ""
    first_epoch: int = 0
    """The epoch at which this command began to work on it."""
    progress: Progress = field(default_factory=Progress)

    @property
    def name(self) -> str:
        """Task, algorithm, seed and hash."""
        return "/".join(self.path.parts[-3:])

    def steps_between(self, first: int, last: int) -> int:
        """From the end of one epoch to that of another."""
        return self.config.steps_after(last) - self.config.steps_after(first)


@dataclass(frozen=True)
class Result:
    """The runs at the end of a benchmark command."""

    runs: list[PlannedRun]

    def of(self, *status: Status) -> list[PlannedRun]:
        """The runs whose status is one of these."""
        return [run for run in self.runs if run.status in status]

    @property
    def exit_status(self) -> int:
        """0 if every run is done, 1 if one failed, 130 if the command was interrupted before the end."""
        if self.of("failed"):
            return 1
        return 0 if len(self.of("done")) == len(self.runs) else 130


class Scheduler:
    """Works through the runs of a plan until each is done or has failed.

    Args:
        configs: the runs' settings.
        root: the folder that holds all runs.
        launcher: starts the jobs.
        retries: how often a failed run is tried again.
        pack: at most this many runs share one simulator.
        view: shows the progress.
    """

    def __init__(
        self,
        configs: Iterable[TrainConfig],
        root: Path,
        launcher: Launcher,
        retries: int = 2,
        pack: int = 1,
        view: BenchmarkView | None = None,
    ) -> None:
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        if pack < 1:
            raise ValueError(f"pack must be at least 1, got {pack}; 1 gives every run its own simulator")
        self.root, self.launcher, self.retries, self.pack = root, launcher, retries, pack
        self.view = view or BenchmarkView(quiet=True)
        self.runs = [PlannedRun(config, run_path(root, config)) for config in configs]
        self._by_path = {run.path: run for run in self.runs}
        self._jobs = 0
        self._stopping = False
        self._begun = time.monotonic()
        self._looked_elsewhere = self._refreshed = 0.0

    def run(self) -> Result:
        """Work until every run is done or failed, or until Ctrl-C; a second Ctrl-C does not wait for epochs to end."""
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
                self._settle(self._by_path[path], ended)
        now = time.monotonic()
        if now - self._looked_elsewhere >= LOOK_ELSEWHERE_SECONDS:
            self._looked_elsewhere = now
            self._look_elsewhere()
        if now - self._refreshed >= REFRESH_SECONDS:
            self._refreshed = now
            self._refresh()

    def _next_job(self) -> Job | None:
        """The next waiting run and others that fit into a pack with it. A run that failed is tried again alone."""
        waiting = [run for run in self.runs if run.status == "waiting"]
        # Runs that failed come last: by then the cause may be gone.
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

    def _settle(self, run: PlannedRun, ended: Ended) -> None:
        """Read from a run's folder how its job ended, and set its status."""
        run.progress = progress(run.path)
        if is_done(run.path, run.config):
            run.status = "done"
            reward, cost = run.progress.reward, run.progress.cost
            numbers = "no episode ended" if math.isnan(reward) else f"reward {reward:z.2f}, cost {cost:z.2f}"
            self.view.say(f"done: {run.name}, {numbers}")
        elif ended.status == BUSY or holder(run.path) is not None:
            run.status = "elsewhere"
        elif self._stopping:
            run.status = "interrupted"
        else:
            self._note_failure(run, ended.error or last_words(run.path / LOG) or "it ended without a word")

    def _note_failure(self, run: PlannedRun, error: str) -> None:
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
        """Look at the runs of other benchmark commands on this folder, and take over those that they dropped."""
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

    # ---- the view ------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        count = Counter(run.status for run in self.runs)
        begun = sum(run.status == "waiting" and run.first_epoch > 0 for run in self.runs)
        packed = f", packs of up to {self.pack}" if self.pack > 1 else ""
        self.view.say(
            f"{len(self.runs)} runs in {self.root}: {count['done']} done before, {begun} to resume,"
            f" {count['waiting'] - begun} to begin; {self.launcher.note}{packed}"
        )
        for note in dict.fromkeys(note for run in self.runs for note in run.config.notes()):
            self.view.say(note)
        for note in self._apart() if self.pack > 1 else ():
            self.view.say(note)

    def _apart(self) -> Iterator[str]:
        """Why there are more packs than runs that fit together would need."""
        epochs: dict[tuple[str, object], Counter[int]] = defaultdict(Counter)
        for run in self.runs:
            if run.status == "waiting" and (key := pack_key(run.config)) is not None:
                epochs[run.config.task, key][run.progress.epoch] += 1
        for (task, _), found in epochs.items():
            packs = sum(math.ceil(count / self.pack) for count in found.values())
            if packs > math.ceil(found.total() / self.pack):
                yield (
                    f"{found.total()} runs of {task} make {packs} packs, as only runs at one epoch share a simulator,"
                    f" and these stand at {len(found)}, from {min(found)} to {max(found)}"
                )

    def _refresh(self) -> None:
        for run in self.runs:
            if run.status == "running":
                run.progress = progress(run.path)
        active = [run for run in self.runs if run.status == "running" and any(run.path.glob(CLAIMS))]
        rows = [Row(r.name, r.progress.epoch, r.config.epochs, r.progress.reward, r.progress.cost) for r in active]
        counts: Counter[str] = Counter(run.status for run in self.runs)
        counts["waiting"] += counts["running"] - len(active)
        counts["running"] = len(active)
        self.view.update(rows, counts, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """The time left at the speed so far; None before the first epoch has ended."""
        counted = [run for run in self.runs if run.status not in ("elsewhere", "failed")]
        unfinished = [run for run in counted if run.status != "done"]
        gained = sum(run.steps_between(run.first_epoch, run.progress.epoch) for run in counted)
        missing = sum(run.steps_between(run.progress.epoch, run.config.epochs) for run in unfinished)
        return missing * (time.monotonic() - self._begun) / gained if gained > 0 else None


def _pack_key(run: PlannedRun) -> tuple[object, int]:
    """What the runs of one pack have in common: their shape, and the epoch at which they resume."""
    return pack_key(run.config), run.progress.epoch


# ---- what was planned --------------------------------------------------------------------------------------------


def write_manifest(name: str, configs: Sequence[TrainConfig], root: Path) -> Path:
    """Write the list of a plan's runs into their folder. From it `collect` knows of runs that never began."""
    paths = [run_path(root, config).relative_to(root).as_posix() for config in configs]
    content = (json.dumps({"plan": name, "runs": paths}, indent=1) + "\n").encode()
    path = root / "plans" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content, alone=False)  # two commands may begin at once
    return path
