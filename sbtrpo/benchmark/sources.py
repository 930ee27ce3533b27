"""Runs from several places as one table: folders of runs, and tables that were collected of others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow

from sbtrpo.benchmark.collect import (
    MAY_CHANGE,
    collect,
    constant,
    counted_once,
    joined,
    read_table,
    setting_columns,
    unused,
)
from sbtrpo.config import TrainConfig


@dataclass(frozen=True)
class Sources:
    """What several places hold."""

    table: pyarrow.Table
    """One row a run and epoch."""
    notes: list[str]
    """What is wrong, and which runs are in several places; first how complete the folders are, if there are any."""


def read_sources(paths: Sequence[Path], needs: Sequence[str] = ()) -> Sources:
    """The runs of all these folders and tables. Of copies of one run, the one that got furthest counts.

    Raises:
        FileNotFoundError: where one of them is missing.
        ValueError: where a table has not all the columns that it `needs`.
    """
    if missing := [path for path in paths if not path.exists()]:
        raise FileNotFoundError(
            f"there is no file or folder {missing[0]}; give folders of runs, or tables that `sbtrpo collect` made"
        )
    files, folders = ([path for path in paths if path.is_file() == is_file] for is_file in (True, False))
    places, tables, notes = list(files), [read_table(file) for file in files], list[str]()
    for file, table in zip(files, tables, strict=True):
        if lacks := [name for name in needs if name not in table.column_names]:
            raise ValueError(f"{file} is no table that `sbtrpo collect` made: it has no column {lacks[0]}")
    if folders:
        collected = collect(*folders)
        places, tables, notes = [*places, folders[0]], [*tables, collected.table], collected.notes()
    if len(tables) == 1:
        return Sources(tables[0], notes)
    tables, repeated = _once(_with_defaults(tables), [path.with_suffix("").as_posix() for path in places])
    return Sources(joined(tables), [*notes, *counted_once(sorted(repeated))])


def _with_defaults(tables: Sequence[pyarrow.Table]) -> list[pyarrow.Table]:
    """The tables with all settings that one of them has; where that is missing, runs have the method's own."""
    names = dict.fromkeys(name for table in tables for name in setting_columns(table))
    return [_filled(table, [name for name in names if name not in table.column_names]) for table in tables]


def _filled(table: pyarrow.Table, names: Sequence[str]) -> pyarrow.Table:
    if not names or not table.num_rows or "epochs" not in table.column_names:
        return table
    methods = list(zip(*(_column(table, name) for name in ("task", "algo", "fidelity")), strict=True))
    kinds = {method: _defaults(*method) for method in dict.fromkeys(methods)}
    place = table.column_names.index("epochs") + 1
    for name in names:
        values = {method: kinds[method].get(name.removeprefix("config_")) for method in kinds}
        parts = [constant(values[method], 1) for method in kinds]
        known = pyarrow.concat_arrays([part.cast(_kind(parts)) for part in parts])
        rows = pyarrow.array([list(kinds).index(method) for method in methods], pyarrow.int64())
        table = table.add_column(place, name, known.take(rows))
    return table


def _kind(parts: Sequence[pyarrow.Array]) -> pyarrow.DataType:
    return next((part.type for part in parts if not pyarrow.types.is_null(part.type)), pyarrow.null())


def _defaults(task: str, algo: str, fidelity: Any) -> dict[str, Any]:
    """A method's own settings; none of one that is not of this package."""
    try:
        return TrainConfig(task=task, algo=algo, fidelity=fidelity or "paper").settings()
    except ValueError:
        return {}


def _once(tables: Sequence[pyarrow.Table], places: Sequence[str]) -> tuple[list[pyarrow.Table], set[str]]:
    """The tables with each run once, and the names of those that were in several.

    Folders of one name may be of different runs, where a user has named them; all but one of these then say where they
    are from.
    """
    kept: dict[str, tuple[str, int, int]] = {}
    """By name: the facts of a run, its table, and how many epochs are there."""
    names: list[dict[str, str | None]] = []
    repeated: set[str] = set()
    for number, (table, place) in enumerate(zip(tables, places, strict=True)):
        named: dict[str, str | None] = {}
        for run, (facts, epochs) in _runs(table).items():
            named[run] = run
            if run in kept and kept[run][0] == facts:
                repeated.add(run)
                if epochs < kept[run][2]:
                    named[run] = None
                    continue
                names[kept[run][1]][run] = None
            elif run in kept:
                named[run] = unused(place, run, kept)
            kept[str(named[run])] = facts, number, epochs
        names.append(named)
    return [_renamed(table, named) for table, named in zip(tables, names, strict=True)], repeated


def _runs(table: pyarrow.Table) -> dict[str, tuple[str, int]]:
    """What tells each run from others of its name, and its epochs; none where runs have no names."""
    runs = _column(table, "run") if "run" in table.column_names else []
    settings = sorted(name for name in setting_columns(table) if name not in MAY_CHANGE)
    columns = [name for name in ("task", "algo", "seed", *settings) if name in table.column_names]
    epochs, first = Counter(runs), {run: row for row, run in reversed(list(enumerate(runs)))}
    return {run: (json.dumps([table[name][first[run]].as_py() for name in columns]), epochs[run]) for run in epochs}


def _renamed(table: pyarrow.Table, names: dict[str, str | None]) -> pyarrow.Table:
    """The table with these names of its runs, and without those that have none."""
    if all(new == old for old, new in names.items()):
        return table
    new = pyarrow.array([names[run] for run in _column(table, "run")], pyarrow.string())
    return table.set_column(table.column_names.index("run"), "run", new).filter(new.is_valid())


def _column(table: pyarrow.Table, name: str) -> list[Any]:
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows
