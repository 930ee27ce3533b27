"""How far runs are. This is read from their folders alone, so that no separate list can be out of date."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sbtrpo.config import TrainConfig
from sbtrpo.files import write_atomically
from sbtrpo.runs.claims import holder

State = Literal["pending", "running", "interrupted", "failed", "done"]
LOG, FAILURE = "log.txt", "failed.json"
_TAIL = 16_384  # bytes: enough for several rows of metrics.csv or several lines of a log


@dataclass(frozen=True)
class Progress:
    """The last whole row of a run's metrics.csv; the default if there is none."""

    epoch: int = 0
    reward: float = float("nan")
    cost: float = float("nan")


@dataclass(frozen=True)
class Failure:
    """Why a run failed, and how often it was tried."""

    error: str
    attempts: int

    @classmethod
    def read(cls, run: Path) -> Failure | None:
        """The failure noted in the run's folder; None if there is none."""
        try:
            content: dict[str, Any] = json.loads((run / FAILURE).read_bytes())
            return cls(str(content["error"]), int(content["attempts"]))
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def write(self, run: Path) -> None:
        """Note the failure in the run's folder."""
        run.mkdir(parents=True, exist_ok=True)
        content = {"error": self.error, "attempts": self.attempts, "log": LOG}
        write_atomically(run / FAILURE, (json.dumps(content, indent=2) + "\n").encode())


def state(run: Path, config: TrainConfig) -> State:
    """A run is done once its summary says so, failed after its last try, and running while a process claims it."""
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
    """Whether the run's summary tells of all its epochs, or why it ended before."""
    return finished_epochs(run) >= config.epochs or bool(_summary(run).get("stopped"))


def finished_epochs(run: Path) -> int:
    """How many epochs the run's summary tells of; 0 without one."""
    try:
        return int(_summary(run)["epochs"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return 0


def _summary(run: Path) -> dict[str, Any]:
    try:
        summary = json.loads((run / "summary.json").read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return summary if isinstance(summary, dict) else {}


def progress(run: Path) -> Progress:
    """How far a run is, from the end of its metrics.csv."""
    try:
        with (run / "metrics.csv").open("rb") as file:
            header = file.readline().decode(errors="replace")
            lines = _lines_at_end(file)
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
    """The last line of a log that is not empty; after a traceback, that line is the error."""
    try:
        with log.open("rb") as file:
            lines = _lines_at_end(file)
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _lines_at_end(file: BinaryIO) -> list[str]:
    """The last lines of a file, none of them from before its current position."""
    file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - _TAIL))
    return file.read().decode(errors="replace").splitlines(keepends=True)
