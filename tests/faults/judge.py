"""What must hold after a round: nothing is lost but the running epoch, and every file is whole or named as damaged."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from PIL import Image

from sbtrpo.errors import UserError
from sbtrpo.files import UNFINISHED
from sbtrpo.runs import checkpoint
from sbtrpo.runs.checkpoint import CheckpointStore, DamagedCheckpoint
from sbtrpo.runs.claims import CLAIMS, holder
from sbtrpo.runs.tables import Episodes
from tests.faults.commands import Ended

Contents = dict[str, bytes]


class Lost(Exception):  # noqa: N818
    """Something is gone, changed or unreadable that must not be; the message says what."""


def contents(folder: Path) -> Contents:
    """All files below a folder, but for notes on who works there, and what a kill left unfinished."""
    files = (path for path in folder.rglob("*") if path.is_file() and not _is_passing(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _is_passing(path: Path) -> bool:
    return path.name.startswith((UNFINISHED, ".old-")) or path.match(CLAIMS)


def rows(run: Path) -> int:
    """Epochs in a run's metrics.csv, whole lines alone."""
    path = run / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def saved(run: Path) -> int:
    """The epoch of a run's newest intact checkpoint; 0 without one."""
    store = CheckpointStore(run / "checkpoints")
    try:
        return store.load_latest()[0] if store.epochs() else 0
    except DamagedCheckpoint as damage:
        raise Lost(f"no checkpoint is left: {damage}") from damage


def expect_kept(run: Path, at_most: int) -> None:
    """Of the epochs in metrics.csv all but the last few can be gone on from."""
    if rows(run) - saved(run) > at_most:
        raise Lost(f"{run.name} has {rows(run)} epochs in metrics.csv, and its newest checkpoint is of {saved(run)}")


def last_row(run: Path) -> dict[str, float]:
    """The last row of a run's metrics.csv."""
    *_, row = csv.DictReader((run / "metrics.csv").read_text().splitlines())
    return {name: float(value) for name, value in row.items()}


def expect_beginning(run: Path, whole: Path, epochs: int) -> None:
    """The first epochs of a run are those of another one."""
    ours, theirs = (_lines(path / "metrics.csv")[: epochs + 1] for path in (run, whole))
    if epochs and ours != theirs:
        raise Lost(f"the first {epochs} rows of metrics.csv differ: {_difference(ours, theirs)}")


def expect_same_run(run: Path, whole: Path, damaged: Collection[Path] = ()) -> None:
    """A finished run has the results of the one that nothing happened to."""
    expect_readable(run, damaged)
    ours, theirs = (_lines(path / "metrics.csv") for path in (run, whole))
    if ours != theirs:
        raise Lost(f"metrics.csv differs: {_difference(ours, theirs)}")
    expect_same_episodes(run, whole)
    state, expected = (_final(path) for path in (run, whole))
    if not _alike(state["policy"], expected["policy"]):
        raise Lost("the final checkpoint has other weights")
    if json.loads((run / "summary.json").read_text())["epochs"] != len(theirs) - 1:
        raise Lost("summary.json tells of another number of epochs")


def expect_same_episodes(run: Path, whole: Path) -> None:
    """Their episodes are the same rows, whatever files these are in."""
    ours, theirs = (Episodes(path / "episodes.parquet").columns() for path in (run, whole))
    if not _alike(ours, theirs):
        raise Lost(f"episodes differ: {[len(table.get('epoch', [])) for table in (ours, theirs)]} rows")


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _difference(ours: list[bytes], theirs: list[bytes]) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours) - 1} rows in place of {len(theirs) - 1}"
    return f"line {next(k for k, pair in enumerate(zip(ours, theirs, strict=True), 1) if pair[0] != pair[1])}"


def _final(run: Path) -> dict[str, Any]:
    return CheckpointStore(run / "checkpoints").load("last")[1]


def _alike(a: Any, b: Any) -> bool:
    """Equal to the last bit, NaNs too."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")


def expect_nobody(run: Path, seconds: float = 60.0) -> None:
    """Whoever worked on a run ends; a worker whose parent was killed goes on to the end of its epoch."""
    deadline = time.monotonic() + seconds
    while (other := holder(run)) is not None:
        if time.monotonic() > deadline:
            raise Lost(f"{run} is still held by {other}")
        time.sleep(0.05)


# ---- files ---------------------------------------------------------------------------------------------------------


def expect_readable(folder: Path, damaged: Collection[Path] = (), unfinished: bool = False) -> None:
    """Every file below a folder is whole, but for those that are known to be damaged.

    Only right after a kill may there be files that somebody was about to write.
    """
    for path in sorted(folder.rglob("*")):
        if _is_passing(path):
            if not unfinished and not path.match(CLAIMS):  # the note of a process that is gone counts for nothing
                raise Lost(f"{path} was left behind")
        elif path.is_file() and path not in damaged:
            try:
                _read(path)
            except (ValueError, OSError, UserError) as error:
                raise Lost(f"{path} cannot be read: {error}") from error


def _read(path: Path) -> None:
    if path.name in (checkpoint.ARRAYS, checkpoint.STRUCTURE):
        checkpoint.load(path.parent)
    elif path.suffix == ".json":
        json.loads(path.read_bytes())
    elif path.suffix == ".toml":
        tomllib.loads(path.read_text())
    elif path.suffix == ".parquet":
        pyarrow.parquet.read_table(path)
    elif path.suffix == ".csv":
        widths = {len(row) for row in csv.reader(path.read_text().splitlines())}
        if len(widths) > 1 or not path.read_bytes().endswith(b"\n"):
            raise ValueError("a row is not whole")
    elif path.suffix == ".png":
        with Image.open(path) as picture:
            picture.load()
    elif path.suffix == ".html" and not path.read_text().rstrip().endswith("</html>"):
        raise ValueError("its end is missing")


def expect_unchanged(folder: Path, before: Contents, but: str = "-") -> None:
    """All files are as they were, and there are no others, but those whose names begin in one way."""
    after = contents(folder)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name) and not name.startswith(but):
            how = "gone" if name not in after else "new" if name not in before else "changed"
            raise Lost(f"{folder / name} is {how}")


# ---- words ---------------------------------------------------------------------------------------------------------


def expect_success(ended: Ended) -> None:
    """The command did what it was asked."""
    if ended.status != 0:
        raise Lost(ended.words)


def expect_refusal(ended: Ended, naming: str = "") -> None:
    """The command said in one sentence what is wrong, and where."""
    sentences = [line for line in ended.output.splitlines() if line.startswith("sbtrpo: ")]
    if ended.status != 2 or len(sentences) != 1 or "Traceback" in ended.output:
        raise Lost(f"no refusal in one sentence: {ended.words}")
    if naming not in sentences[0]:
        raise Lost(f"{naming} is not named: {sentences[0]}")
