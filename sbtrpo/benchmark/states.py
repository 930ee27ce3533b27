"""How far runs are, read from their folders alone: there is no list beside them to fall out of step."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sbtrpo.config import TrainConfig
from sbtrpo.files import write_atomically
from sbtrpo.runs.claims import holder

State = Literal["pending", "running", "interrupted", "failed", "done"]
LOG, FAILURE = "log.txt", "failed.json"
_TAIL = 16_384  # bytes: some rows of metrics.csv, some lines of a log


@dataclass(frozen=True)
class Progress:
    """The last epoch that metrics.csv tells of."""

    epoch: int = 0
    reward: float = float("nan")
    cost: float = float("nan")


@dataclass(frozen=True)
class Failure:
    """Why a run failed, as often as it was tried."""

    error: str
    attempts: int

    @classmethod
    def read(cls, run: Path) -> Failure | None:
        """What the run's folder says; None if it did not fail."""
        try:
            content: dict[str, Any] = json.loads((run / FAILURE).read_text())
            return cls(str(content["error"]), int(content["attempts"]))
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def write(self, run: Path) -> None:
        """Note it in the run's folder."""
        run.mkdir(parents=True, exist_ok=True)
        content = {"error": self.error, "attempts": self.attempts, "log": LOG}
        write_atomically(run / FAILURE, (json.dumps(content, indent=2) + "\n").encode())


def state(run: Path, config: TrainConfig) -> State:
    """A run's state: done with its summary; failed after its last try; running while someone holds its claim."""
    if is_done(run, config):
        return "done"
    if not run.exists():
        return "pending"
    if holder(run) is not None:
        return "running"
    if (run / FAILURE).exists():
        return "failed"
    return "interrupted" if (run / "config.toml").exists() else "pending"


def is_done(run: Path, config: TrainConfig) -> bool:
    """Whether the run is at its end."""
    try:
        summary = json.loads((run / "summary.json").read_text())
        return int(summary["epochs"]) >= config.epochs
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def progress(run: Path) -> Progress:
    """How far a run is, from the end of its metrics.csv."""
    try:
        with (run / "metrics.csv").open("rb") as file:
            header = file.readline().decode(errors="replace")
            start = file.tell()
            file.seek(max(start, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return Progress()
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        return Progress()
    try:
        row = dict(zip(*csv.reader([header, whole[-1]]), strict=False))
        return Progress(int(float(row["epoch"])), float(row["reward"]), float(row["cost"]))
    except (KeyError, ValueError, OverflowError, csv.Error):  # a row that is being written, or damaged
        return Progress()


def last_words(log: Path) -> str:
    """The last line of a log that says something; of a traceback, the error."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
