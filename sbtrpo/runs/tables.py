"""The tables of a run's folder: rows of epochs as CSV, episodes as a folder of Parquet parts."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from sbtrpo.errors import UserError
from sbtrpo.files import UNFINISHED, Guard, move, naming, remove, sync_folder, unguarded, write_atomically

INTEGERS = ("epoch", "world", "step", "length", "goals")
"""Columns of episodes.parquet that hold whole numbers; `faulted` is true or false, and the others are floats."""
LATER = re.compile("faulted|faulted_episodes|holds_.*")
"""Columns that older versions did not write; a run of theirs goes on without them."""
NO_ROWS = hashlib.sha256().hexdigest()
"""The digest of a table without rows."""
_PART = re.compile(r"(\d+)-(\d+)\.parquet")
_BECOMING = ".parts-"  # prefix of the folder that an older version's file is moved into
FANOUT = 16
"""This many parts of a size become one, which is that many times as large."""
LARGEST = FANOUT**4
"""Rows from which on a part is not merged any more, so that a merge never holds much in memory."""


class Table:
    """A CSV file to which rows are added; each is on the disk before the next line of code runs."""

    def __init__(self, path: Path, guard: Guard = unguarded, without: str = "train anew") -> None:
        self.path, self._guard, self._without = path, guard, without
        self._keys: list[str] | None = None
        self._written: hashlib._Hash | None = None  # the hash of all rows and their header; read when it is needed

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; the first one decides which columns there are, all others must have the same."""
        if self._keys is None:
            self._keys = next(map(self._cells, self._lines()[:1]), None)
        new = self._keys is None
        if self._keys is None:
            self._keys = list(row)
        row = _known(row, self._keys)
        if set(row) != set(self._keys):
            odd = ", ".join(sorted(set(row) ^ set(self._keys)))
            raise ValueError(
                f"{self.path.name} and its next row differ in {odd}; every epoch has the same columns, and a run whose"
                " callbacks add some is resumed with these callbacks"
            )
        lines = [self._keys] if new else []
        lines.append([_number(row[key]) for key in self._keys])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        written = self._hash()
        self._guard()
        with naming(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        written.update(text.getvalue().encode())
        if new:
            sync_folder(self.path.parent)

    def rewind(self, epoch: int) -> None:
        """Keep the header and the rows up to `epoch`, as the bytes they are."""
        if not self.path.exists():
            return
        kept = self._up_to(epoch)
        write_atomically(self.path, kept.encode(), guard=self._guard)
        self._written = hashlib.sha256(kept.encode())
        if not kept:
            self._keys = None

    def digest(self) -> str:
        """The SHA-256 of all rows and their header."""
        return self._hash().hexdigest()

    def _hash(self) -> hashlib._Hash:
        if self._written is None:
            self._written = hashlib.sha256("".join(self._lines()).encode())
        return self._written

    def check(self, epoch: int, digest: str | None) -> str:
        """Compare the rows up to `epoch` with this digest, which older runs lack.

        Returns what to say where the file is missing; raises `UserError` where it holds other rows.
        """
        if digest in (None, hashlib.sha256(self._up_to(epoch).encode()).hexdigest()):
            return ""
        if not self.path.exists():
            return f"{self.path} is missing: its rows up to epoch {epoch} are lost"
        raise UserError(
            f"{self.path} is damaged: its rows up to epoch {epoch} are not what was written; restore it from a copy,"
            f" or {self._without}"
        )

    def _up_to(self, epoch: int) -> str:
        """The header and the rows up to `epoch`; without rows, without header: the next row decides on the columns."""
        lines = self._lines()
        kept = [line for line, number in zip(lines[1:], self._epochs(lines), strict=True) if number <= epoch]
        return "".join([*lines[:1], *kept]) if kept else ""

    @property
    def last_epoch(self) -> int:
        """The highest epoch of any row, 0 without rows."""
        return max(self._epochs(self._lines()), default=0)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Every column as floats, exactly as they were before they were written."""
        rows = [self._cells(line) for line in self._lines()]
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
        try:
            return re.findall(r"[^\n]*\n", self.path.read_bytes().decode())
        except UnicodeDecodeError as error:
            raise self._damaged() from error

    def _epochs(self, lines: list[str]) -> list[int]:
        """The epoch of each line but the first."""
        try:
            place = self._cells(lines[0]).index("epoch") if lines else 0
            return [int(float(self._cells(line)[place])) for line in lines[1:]]
        except (ValueError, IndexError, OverflowError) as error:
            raise self._damaged() from error

    def _cells(self, line: str) -> list[str]:
        try:
            return next(csv.reader([line]), [])
        except csv.Error as error:
            raise self._damaged() from error

    def _damaged(self) -> UserError:
        return UserError(
            f"{self.path} is damaged: a row is not all numbers, as if two commands had written to it; mend or delete"
            " that row, or train anew"
        )


@dataclass(frozen=True)
class Part:
    """A Parquet file with the episodes of epochs `first` to `last`."""

    path: Path
    first: int
    last: int
    rows: int


class Episodes:
    """A folder of Parquet files, its parts, that are read as one table of episodes in the order of epochs.

    Whoever reads a folder of Parquet files gets all rows: `pyarrow.parquet.read_table(run / "episodes.parquet")`. A
    flush writes the new rows alone, as a part named by its first and last epoch. Now and then it takes the rows of
    the latest parts into the new one (see `merged_from`): of n rows each is written O(log n) times, and O(log n) parts
    below the largest size remain.

    A kill at any moment loses nothing that was flushed. A part appears whole, and only then are those removed that it
    covers; where both are there, the covering one counts and the next writer removes the others. Other programs do
    not know this and may see those rows twice until then.

    Runs of older versions have a file of this name. It becomes the first part when a writer comes. Between its two
    renames the rows lie in a hidden folder beside the name, where readers look, too.

    Only rows that are not yet flushed are held in memory. A resumed run has the rows of one that never stopped, but not
    always the same parts: where these begin and end depends on when rows were flushed and rewound.
    """

    def __init__(self, path: Path, guard: Guard = unguarded) -> None:
        self.path, self._guard = path, guard
        self._becoming = path.with_name(f"{_BECOMING}{path.name}")
        self._pending: list[pyarrow.Table] = []  # an epoch each
        # What follows only a writer knows.
        self._writing = False
        self._parts: list[Part] = []
        self._schema: pyarrow.Schema | None = None
        self._written = hashlib.sha256()

    def add(self, epoch: int, episodes: Mapping[str, NDArray[Any]]) -> None:
        """Take in an epoch's episodes, (E,) arrays; `flush` brings them to the disk."""
        count = len(next(iter(episodes.values()), []))
        if not count:
            return
        self._begin_writing()
        columns = {"epoch": np.full(count, epoch), **episodes}
        columns = _known(columns, columns if self._schema is None else self._schema.names)
        kinds = dict.fromkeys(INTEGERS, np.int64) | {"faulted": np.bool_}
        table = pyarrow.table({key: np.asarray(x).astype(kinds.get(key, np.float64)) for key, x in columns.items()})
        if self._schema is not None and table.schema != self._schema:
            raise ValueError(f"{self.path.name} has the columns {self._schema.names}, these have {table.column_names}")
        last = _last_epoch(self._pending[-1]) if self._pending else self._parts[-1].last if self._parts else None
        if last is not None and epoch <= last:
            raise ValueError(f"{self.path.name} goes on after epoch {last}, got epoch {epoch}; rewind the run first")
        self._schema = table.schema
        self._pending.append(table)
        _take_in(self._written, table)

    def flush(self) -> None:
        """Bring what was added to the disk."""
        if not self._pending:
            return
        sizes = [part.rows for part in self._parts] + [sum(map(len, self._pending))]
        first = merged_from(sizes)
        merged = [_read(part.path) for part in self._parts[first:]]
        written = self._write(pyarrow.concat_tables([*merged, *self._pending]))
        self._parts, self._pending = [*self._parts[:first], written], []
        self._remove_all_but_parts()

    def rewind(self, epoch: int) -> None:
        """Drop the episodes of all epochs after `epoch`."""
        self._begin_writing()
        self._pending = [table for table in self._pending if _last_epoch(table) <= epoch]
        kept = [part for part in self._parts if part.first <= epoch]
        if kept and kept[-1].last > epoch:
            table = _read(kept[-1].path)
            kept[-1] = self._write(table.filter(pyarrow.array(table["epoch"].to_numpy() <= epoch)))
        self._parts = kept
        self._remove_all_but_parts()
        if not kept and not self._pending:  # the next row decides which columns there are
            self._schema = None
        self._written = self._hashed(epoch)

    def digest(self) -> str:
        """The SHA-256 of all rows, whatever parts they are in."""
        self._begin_writing()
        return self._written.hexdigest()

    def part_digests(self) -> dict[str, str]:
        """The SHA-256 of every part's bytes, by its name below the run's folder; quicker than to read the rows."""
        return {
            f"{self.path.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in self._files()
        }

    def check(self, epoch: int, digest: str | None) -> str:
        """As `Table.check`."""
        if digest in (None, self._hashed(epoch).hexdigest()):
            return ""
        if not self._files():
            return f"{self.path} is missing: its episodes up to epoch {epoch} are lost"
        raise UserError(
            f"{self.path} is damaged: its rows up to epoch {epoch} are not what was written; restore it from a copy,"
            " or delete it and go on without these episodes"
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every column, with episodes that are not yet written."""
        tables = [*self._read_all(), *self._pending]
        if not tables:
            return {}
        table = pyarrow.concat_tables(tables)
        return {name: table[name].to_numpy() for name in table.column_names}

    # ---- reading -------------------------------------------------------------------------------------------------

    def _hashed(self, epoch: int | None = None) -> hashlib._Hash:
        """The hash of the rows up to an epoch, or of all."""
        written = hashlib.sha256()
        for table in (*map(_read, self._files()), *self._pending):  # one at a time: parts may be large
            _take_in(written, table, epoch)
        return written

    def _read_all(self) -> list[pyarrow.Table]:
        """What is on the disk, even while a writer merges parts after they were listed here."""
        while True:
            files = self._files()
            try:
                return [_read(path) for path in files]
            except FileNotFoundError:
                if self._files() == files:
                    raise

    def _files(self) -> list[Path]:
        """The files that hold the rows, in order: an older version's one, or the parts that no other covers."""
        for place in (self.path, self._becoming, self.path):  # twice, as the folder may just have got its name
            if place.is_file():
                return [place]
            if place.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    return _uncovered(place)
        return []

    # ---- writing -------------------------------------------------------------------------------------------------

    def _begin_writing(self) -> None:
        """Put in order what an older version or a kill has left; readers must not."""
        if self._writing:
            return
        self._guard()
        self._become_folder()
        files = self._files()
        footers = [_read(path, pyarrow.parquet.read_metadata) for path in files]
        self._parts = [Part(path, *_epochs(path), footer.num_rows) for path, footer in zip(files, footers, strict=True)]
        self._schema = footers[0].schema.to_arrow_schema() if footers else None
        self._remove_all_but_parts()
        self._written = self._hashed()
        self._writing = True

    def _become_folder(self) -> None:
        """Turn an older version's file into the first part: at any moment either name has the rows."""
        remove(self.path.with_name(f"{UNFINISHED}{self.path.name}"))
        if self.path.is_file():
            name = _part_name(_read(self.path))
            self._becoming.mkdir(exist_ok=True)
            move(self.path, self._becoming / name)
            sync_folder(self._becoming)
        if self._becoming.is_dir():
            move(self._becoming, self.path)
            sync_folder(self.path.parent)

    def _write(self, table: pyarrow.Table) -> Part:
        name, buffer = _part_name(table), io.BytesIO()
        # One chunk: the bytes then depend on the rows alone, not on how they came in.
        pyarrow.parquet.write_table(table.combine_chunks(), buffer)
        if not self.path.exists():
            self.path.mkdir()
            sync_folder(self.path.parent)
        write_atomically(self.path / name, buffer.getvalue(), guard=self._guard)
        return Part(self.path / name, *_epochs(self.path / name), len(table))

    def _remove_all_but_parts(self) -> None:
        """Remove parts that are merged, cut or rewound, and files that a kill left unfinished.

        The latest go first: if a kill comes between, all rows up to some epoch are left, and none after it.
        """
        if not self.path.exists():
            return
        self._guard()
        counting = {part.path for part in self._parts}
        for path in sorted(self.path.iterdir(), reverse=True):
            if path not in counting and (path.name.startswith(UNFINISHED) or _PART.fullmatch(path.name)):
                remove(path)
        if not counting and not any(self.path.iterdir()):
            self.path.rmdir()


def merged_from(sizes: Sequence[int]) -> int:
    """Which parts a new one takes in: the index of the first of them, given the rows of all parts, the new one last.

    A part's level is the logarithm of its rows to base 16, rounded down. The new part takes in those before it of lower
    levels and, where it is the sixteenth of its own level, those of its level; then the same with what it has become.
    So levels never rise from part to part, at most fifteen parts share a level, and rows that are written again rise by
    a level or more. The largest parts are all of one level, which any number may share.

    >>> merged_from([300, 4, 4, 1])  # nothing but the new part
    3
    >>> merged_from([300, 4, 4, 20])
    1
    >>> merged_from([300] + [1] * 16)
    1
    """
    levels = [_level(rows) for rows in sizes[:-1]]
    first, rows = len(levels), sizes[-1]
    while True:
        lower = first - sum(level < _level(rows) for level in levels[:first])
        alike = lower - levels[:lower].count(_level(rows))
        start = alike if lower - alike + 1 >= FANOUT and rows < LARGEST else lower
        if start == first:
            return first
        first, rows = start, sum(sizes[start:])


def _level(rows: int) -> int:
    return (min(rows, LARGEST).bit_length() - 1) // (FANOUT.bit_length() - 1)


def _uncovered(folder: Path) -> list[Path]:
    """The parts in a folder in the order of epochs, without those that a longer one covers."""
    parts: list[Path] = []
    end = -1
    for path in sorted((path for path in folder.iterdir() if _PART.fullmatch(path.name)), key=_longest_first):
        first, last = _epochs(path)
        if last <= end:
            continue
        if first <= end:
            raise UserError(
                f"{parts[-1]} and {path.name} both have episodes of epoch {first}, as if two commands had written"
                " there; move one of them elsewhere, or train anew"
            )
        parts.append(path)
        end = last
    return parts


def _longest_first(part: Path) -> tuple[int, int]:
    first, last = _epochs(part)
    return first, -last


def _epochs(part: Path) -> tuple[int, int]:
    """The first and the last epoch, by a part's name."""
    match = _PART.fullmatch(part.name)
    assert match is not None
    return int(match[1]), int(match[2])


def _part_name(table: pyarrow.Table) -> str:
    """Digits enough that names sort in the order of epochs: pyarrow reads them so."""
    epochs = table["epoch"].to_numpy()
    return f"{epochs.min():08d}-{epochs.max():08d}.parquet"


def _last_epoch(table: pyarrow.Table) -> int:
    return int(table["epoch"].to_numpy().max())


def _take_in(written: hashlib._Hash, table: pyarrow.Table, last: int | None = None) -> None:
    """Add rows up to an epoch to a hash, one epoch after the other, so that it does not matter how they came in."""
    columns = {name: table[name].to_numpy() for name in table.column_names}
    epochs, starts = np.unique(columns["epoch"], return_index=True)
    for epoch, start, end in zip(epochs, starts, [*starts[1:], len(table)], strict=True):
        if last is None or epoch <= last:
            for name, values in columns.items():
                written.update(name.encode() + np.ascontiguousarray(values[start:end]).tobytes())


def _read(path: Path, read: Callable[[Path], Any] = pyarrow.parquet.read_table) -> Any:
    """A part's rows, or its metadata; one that is damaged is named."""
    try:
        return read(path)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        whole = path.parent if _PART.fullmatch(path.name) else path
        raise UserError(
            f"{path} is damaged ({' '.join(str(error).split())}); restore it from a copy, or delete {whole} and go on"
            " without its episodes"
        ) from error


def _known(row: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """What a table with these columns has room for: all but those that it is too old for."""
    return {name: value for name, value in row.items() if name in columns or not LATER.fullmatch(name)}


def _number(value: float) -> str:
    """Digits from which the same number is read: whole numbers plainly, floats in their shortest exact form."""
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(int(value))
    return repr(float(value))
