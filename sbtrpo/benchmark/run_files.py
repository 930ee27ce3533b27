"""What the files of one run hold, and what is wrong with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv

from sbtrpo.errors import UserError
from sbtrpo.runs.folder import EPISODES, EVALUATIONS
from sbtrpo.runs.tables import NO_ROWS, Episodes


def digests(run: Path) -> dict[str, str]:
    """What a finished run's tables held at its end; runs of older versions do not tell."""
    try:
        content = (run / "summary.json").read_bytes()
        return {str(name): str(digest) for name, digest in json.loads(content)["sha256"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError):
        return {}


def damage(run: Path, written: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with those files of a finished run that its rows can do without."""
    for name in ("timing.csv", EVALUATIONS):
        if written.get(name, NO_ROWS) != NO_ROWS and not (run / name).exists():
            yield f"{name} is missing"
    then = {name: digest for name, digest in written.items() if name.startswith(f"{EPISODES}/")}
    try:
        now = Episodes(run / EPISODES).part_digests() if then else {}
    except (UserError, OSError) as error:
        yield f"{EPISODES} is damaged: {error}"
    else:
        if now != then:
            wrong = "is damaged: it is not what the run wrote; restore it from a copy"
            yield f"{EPISODES} {wrong if now else 'is missing'}"


def read_csv(path: Path, written: Mapping[str, str]) -> pyarrow.Table | None:
    """A run's table with all columns as floats; a last line that is being written does not count."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    content = content[: content.rfind(b"\n") + 1]
    digest = hashlib.sha256(content).hexdigest()
    if written.get(path.name, digest) != digest:
        raise ValueError(f"{path.name} is damaged: it is not what the run wrote; restore it from a copy")
    header, _, rows = content.partition(b"\n")
    if not rows:
        return None
    try:
        kinds = dict.fromkeys(header.decode().split(","), pyarrow.float64())
        options = pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[""])
        return pyarrow.csv.read_csv(pyarrow.BufferReader(header + b"\n" + rows), convert_options=options)
    except ValueError as error:  # Arrow's error derives from it
        raise ValueError(f"{path.name} is damaged ({' '.join(str(error).split())})") from error


def beside(metrics: pyarrow.Table, path: Path, written: Mapping[str, str]) -> dict[str, Any]:
    """The columns of another table of a run, in the rows of its epochs; empty in those of which it says nothing."""
    table = read_csv(path, written)
    if table is None:
        return {}
    if "epoch" not in table.column_names:
        raise ValueError(f"{path.name} has no column epoch")
    place = {epoch: k for k, epoch in enumerate(table["epoch"].to_pylist())}
    rows_of = [place.get(epoch) for epoch in metrics["epoch"].to_pylist()]
    rows = table.take(pyarrow.array(rows_of, pyarrow.int64()))  # a run may be going on, or have lost a table
    return {name: rows[name] for name in rows.column_names if name != "epoch"}
