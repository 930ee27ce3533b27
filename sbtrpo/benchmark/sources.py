"""Runs from several places as one table: folders of runs, and tables that were collected of others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow

from sbtrpo.benchmark.collect import collect, read_table
from sbtrpo.errors import sentence

_FACTS = ("task", "algo", "seed", "total_steps")
"""In which two runs differ that have the same name by chance."""


@dataclass(frozen=True)
class Sources:
    """What several places hold."""

    table: pyarrow.Table
    """One row a run and epoch."""
    notes: list[str]
    """How complete each folder is, and all that is wrong; then which runs are in several places."""


def read_sources(paths: Sequence[Path]) -> Sources:
    """The runs of all these folders and tables. A run that is in several is taken from the last of them."""
    tables, notes = [], []
    for path in paths:
        if path.is_file():
            tables.append(read_table(path))
        else:
            collected = collect(path)
            tables.append(collected.table)
            notes += collected.notes()
    tables, repeated = _once(tables, [path.stem for path in paths])
    if repeated:
        notes.append(f"{len(repeated)} runs are in several places, and count once: {', '.join(sorted(repeated))}")
    return Sources(joined(tables), notes)


def joined(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    """The runs of several tables as one; what a table has no column for is missing in its rows."""
    try:
        whole = pyarrow.concat_tables(tables, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise ValueError(f"these tables are too unlike to be joined ({sentence(error)})") from error
    # What stands before the epochs says what a run is of, and does so still.
    before = [name for table in tables for name in itertools.takewhile("epoch".__ne__, table.column_names)]
    return whole.select(list(dict.fromkeys([*before, *whole.column_names])))


def _once(tables: Sequence[pyarrow.Table], places: Sequence[str]) -> tuple[list[pyarrow.Table], set[str]]:
    """The tables without runs that a later one has, too, and the names of these.

    Folders of one name may be of different runs, where a user has named them; that of the earlier one then says where
    it is from.
    """
    left, repeated, later = list[pyarrow.Table](), set[str](), dict[str, set[Any]]()
    for table, place in zip(reversed(tables), reversed(places), strict=True):
        runs = _column(table, "run")
        facts = dict(zip(runs, zip(*(_column(table, name) for name in _FACTS), strict=True), strict=True))
        same = {run for run in facts if facts[run] in later.get(run, ())}
        names = {run: run if run in same or run not in later else f"{place}/{run}" for run in facts}
        renamed = pyarrow.array([names[run] for run in runs], pyarrow.string())
        whole = table.set_column(table.column_names.index("run"), "run", renamed)
        left.append(whole.filter(pyarrow.array([run not in same for run in runs], pyarrow.bool_())))
        repeated |= same
        for run in facts:
            later.setdefault(run, set()).add(facts[run])
    return left[::-1], repeated


def _column(table: pyarrow.Table, name: str) -> list[Any]:
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows
