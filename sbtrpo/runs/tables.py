"""The tables of a run's folder: rows of epochs as CSV, episodes as Parquet."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from sbtrpo.errors import UserError
from sbtrpo.files import sync_folder, write_atomically

INTEGERS = ("epoch", "world", "step", "length", "goals")
"""Columns of episodes.parquet that hold whole numbers; the others are floats."""


class Table:
    """A CSV file to which rows are added; each is on the disk before the next line of code runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: list[str] | None = None
        if path.exists():
            self._keys = next(csv.reader(self._lines()[:1]), None)

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; the first one decides which columns there are, all others must have the same."""
        new = self._keys is None
        if self._keys is None:
            self._keys = list(row)
        if set(row) != set(self._keys):
            odd = sorted(set(row) ^ set(self._keys))
            raise ValueError(f"{self.path.name} has the columns {self._keys}, this row differs in {odd}")
        lines = [self._keys] if new else []
        lines.append([_number(row[key]) for key in self._keys])
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self.path.parent)

    def rewind(self, epoch: int) -> None:
        """Keep the header and the rows up to `epoch`, as the bytes they are."""
        if not self.path.exists():
            return
        lines = self._lines()
        kept = [line for line, number in zip(lines[1:], self._epochs(lines), strict=True) if number <= epoch]
        # Without rows, without header: the next row decides which columns there are.
        write_atomically(self.path, "".join([*lines[:1], *kept] if kept else []).encode())
        if not kept:
            self._keys = None

    @property
    def last_epoch(self) -> int:
        """The highest epoch of any row, 0 without rows."""
        return max(self._epochs(self._lines()), default=0)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Every column as floats, exactly as they were before they were written."""
        rows = list(csv.reader(self._lines()))
        if not rows:
            return {}
        try:
            values = np.array(rows[1:], dtype=np.float64).reshape(len(rows) - 1, len(rows[0]))
        except ValueError as error:
            raise self._damaged() from error
        return dict(zip(rows[0], values.T, strict=True))

    def _lines(self) -> list[str]:
        """Whole lines; a kill in the midst of a write leaves one without its end, which does not count."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes().decode()
        return [line for line in content.splitlines(keepends=True) if line.endswith("\n")]

    def _epochs(self, lines: list[str]) -> list[int]:
        try:
            return [int(float(row["epoch"])) for row in csv.DictReader(lines)]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged() from error

    def _damaged(self) -> UserError:
        return UserError(
            f"{self.path} is damaged: a row is not all numbers, as if two commands had written to it; mend or delete"
            " that row, or train anew"
        )


class Episodes:
    """A Parquet file of episodes. Parquet cannot grow, so it is written anew from memory: some 20,000 rows a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tables: list[pyarrow.Table] = [pyarrow.parquet.read_table(path)] if path.exists() else []
        self._dirty = False

    def add(self, epoch: int, episodes: Mapping[str, NDArray[Any]]) -> None:
        """Take in an epoch's episodes, (E,) arrays; `flush` brings them to the disk."""
        count = len(next(iter(episodes.values()), []))
        if not count:
            return
        columns = {"epoch": np.full(count, epoch), **episodes}
        kinds = {name: np.int64 if name in INTEGERS else np.float64 for name in columns}
        table = pyarrow.table({name: np.asarray(values).astype(kinds[name]) for name, values in columns.items()})
        if self._tables and table.schema != self._tables[0].schema:
            raise ValueError(
                f"{self.path.name} has the columns {self._tables[0].column_names}, these have {table.column_names}"
            )
        self._tables.append(table)
        self._dirty = True

    def flush(self) -> None:
        """Bring what was added to the disk."""
        if not self._dirty:
            return
        # One chunk: the bytes then depend on the rows alone, not on how they came in.
        self._tables = [pyarrow.concat_tables(self._tables).combine_chunks()]
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(self._tables[0], buffer)
        write_atomically(self.path, buffer.getvalue())
        self._dirty = False

    def rewind(self, epoch: int) -> None:
        """Drop the episodes of all epochs after `epoch`."""
        kept = [table.filter(pyarrow.array(table["epoch"].to_numpy() <= epoch)) for table in self._tables]
        before, self._tables = self._tables, [table for table in kept if len(table)]
        if sum(map(len, before)) == sum(map(len, self._tables)):
            return
        self._dirty = True
        if self._tables:
            self.flush()
        else:
            self.path.unlink(missing_ok=True)
            self._dirty = False

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every column, with episodes that are not yet written."""
        if not self._tables:
            return {}
        table = pyarrow.concat_tables(self._tables)
        return {name: table[name].to_numpy() for name in table.column_names}


def _number(value: float) -> str:
    """Digits from which the same number is read: whole numbers plainly, floats in their shortest exact form."""
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(int(value))
    return repr(float(value))
