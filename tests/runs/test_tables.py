"""The table of episodes grows by parts, and no kill loses or doubles a row."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrpo import files
from sbtrpo.errors import UserError
from sbtrpo.runs import tables
from sbtrpo.runs.tables import FANOUT, LARGEST, Episodes, merged_from

Columns = dict[str, np.ndarray[Any, Any]]


@functools.cache
def episodes(epoch: int) -> Columns:
    rng = np.random.default_rng(epoch)
    count = epoch % 4  # some epochs finish none
    return {
        "world": rng.integers(0, 9, count),
        "return": rng.normal(size=count),
        "cost": rng.exponential(size=count),
        "goals": np.ones(count),
    }


def up_to(epoch: int) -> Columns:
    """The columns of a table that holds all epochs until this one."""
    finished = [number for number in range(1, epoch + 1) if number % 4]
    if not finished:
        return {}
    columns = {name: np.concatenate([episodes(number)[name] for number in finished]) for name in episodes(1)}
    return {"epoch": np.repeat(finished, [number % 4 for number in finished]), **columns}


def same(ours: Columns, theirs: Columns) -> bool:
    return list(ours) == list(theirs) and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def holds(table: Episodes, epoch: int) -> bool:
    """Whether the table, and whatever others read from the disk, has the rows up to an epoch, each once."""
    if not table.path.exists():
        return up_to(epoch) == {} == table.columns()
    read = pyarrow.parquet.read_table(table.path)
    return same(table.columns(), up_to(epoch)) and same(
        {name: read[name].to_numpy() for name in read.column_names}, up_to(epoch)
    )


def write(table: Episodes, first: int, last: int) -> None:
    for epoch in range(first, last + 1):
        table.add(epoch, episodes(epoch))
        table.flush()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def write_old_file(path: Path, last: int) -> None:
    """The one file that the first version wrote."""
    kinds = {"epoch": np.int64, "world": np.int64, "goals": np.int64}
    columns = {name: values.astype(kinds.get(name, np.float64)) for name, values in up_to(last).items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill of the process does not need the disk
    return tmp_path / "episodes.parquet"


# ---- growth ----------------------------------------------------------------------------------------------------------


def test_parts_are_named_by_their_epochs_and_read_as_one_table_in_their_order(path: Path) -> None:
    table = Episodes(path)
    write(table, 1, 11)
    (path / ".tmp-00000012-00000012.parquet").write_bytes(b"PAR1 unfinished")
    finished = (1, 2, 3, 5, 6, 7, 9, 10, 11)
    assert names(path)[1:] == [f"{epoch:08d}-{epoch:08d}.parquet" for epoch in finished]
    assert holds(table, 11)
    assert holds(Episodes(path), 11)
    schema = pyarrow.parquet.read_table(path).schema
    assert [str(kind) for kind in schema.types] == ["int64", "int64", "double", "double", "int64"]


def test_rows_lie_on_the_disk_and_not_in_memory(path: Path, tmp_path: Path) -> None:
    table = Episodes(path)
    write(table, 1, 3)
    table.add(5, episodes(5))
    path.rename(tmp_path / "elsewhere")
    assert table.columns()["epoch"].tolist() == [5]


def test_three_hundred_flushes_leave_few_files_and_write_few_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    real = pyarrow.parquet.write_table

    def count(table: pyarrow.Table, sink: Any) -> None:
        written.append(len(table))
        real(table, sink)

    monkeypatch.setattr(pyarrow.parquet, "write_table", count)
    table = Episodes(path)
    parts = []
    for epoch in range(1, 301):
        table.add(epoch, {"return": np.arange(4.0)})
        table.flush()
        parts.append(len(names(path)))
    assert max(parts) <= 15 + 15  # of 4 and of 64 rows, before they become one of 1,024
    assert len(written) == 300  # a merge is no write of its own
    assert sum(written) <= 3 * 4 * 300  # each row alone, among 64 and among 1,024
    assert pyarrow.parquet.read_table(path)["epoch"].to_pylist() == np.repeat(np.arange(1, 301), 4).tolist()


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 3 * LARGEST)), max_size=100))
def test_parts_of_any_sizes_stay_few_and_rows_are_seldom_written_again(flushed: list[int]) -> None:
    parts: list[int] = []
    written = 0
    for rows in flushed:
        first = merged_from([*parts, rows])
        parts[first:] = [sum(parts[first:]) + rows]
        written += parts[-1]
        levels = [math.floor(math.log(min(size, LARGEST), FANOUT) + 1e-9) for size in parts]
        assert levels == sorted(levels, reverse=True)
        assert all(levels.count(level) < FANOUT for level in range(4))
    assert sum(parts) == sum(flushed)
    assert written <= 5 * sum(flushed)  # once, and once for each level below the largest


def test_the_largest_parts_are_left_alone() -> None:
    assert merged_from([LARGEST] * 20 + [LARGEST]) == 20
    assert merged_from([LARGEST] * 20 + [1]) == 20


def test_flushing_nothing_writes_nothing(path: Path) -> None:
    table = Episodes(path)
    table.flush()
    table.add(4, episodes(4))
    table.flush()
    assert not path.exists()
    write(table, 1, 3)
    before = {entry: entry.stat().st_mtime_ns for entry in path.iterdir()}
    table.flush()
    assert {entry: entry.stat().st_mtime_ns for entry in path.iterdir()} == before


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True])
def test_rows_with_other_columns_are_refused(path: Path, old: bool) -> None:
    if old:
        write_old_file(path, 3)
    else:
        write(Episodes(path), 1, 3)
    table = Episodes(path)
    for other in ({**episodes(5), "extra": np.ones(1)}, dict(reversed(episodes(5).items()))):
        with pytest.raises(ValueError, match=r"episodes\.parquet has the columns \['epoch', 'world', .*these have"):
            table.add(5, other)
    write(table, 5, 6)
    assert holds(table, 6)


def test_after_a_rewind_to_the_start_other_columns_may_come(path: Path) -> None:
    table = Episodes(path)
    write(table, 1, 3)
    table.rewind(0)
    assert not path.exists()
    table.add(1, {"return": np.ones(2)})
    table.flush()
    assert list(Episodes(path).columns()) == ["epoch", "return"]


@pytest.mark.parametrize("reopened", [False, True])
def test_an_epoch_cannot_come_twice(path: Path, reopened: bool) -> None:
    table = Episodes(path)
    write(table, 1, 3)
    if reopened:
        table = Episodes(path)
    with pytest.raises(ValueError, match="goes on after epoch 3, got epoch 2; rewind the run first"):
        table.add(2, episodes(2))
    table.add(5, episodes(5))
    with pytest.raises(ValueError, match="goes on after epoch 5, got epoch 5"):
        table.add(5, episodes(5))
    table.flush()
    assert holds(table, 5)


def test_parts_that_contradict_each_other_are_named(path: Path) -> None:
    write(Episodes(path), 1, 3)
    (path / "00000001-00000001.parquet").rename(path / "00000001-00000002.parquet")
    (path / "00000002-00000002.parquet").rename(path / "00000002-00000003.parquet")
    with pytest.raises(UserError, match=r"00000001-00000002.parquet and 00000002-00000003.parquet both have"):
        Episodes(path).columns()


def test_a_damaged_part_is_named_with_what_to_do(path: Path) -> None:
    write(Episodes(path), 1, 3)
    (path / "00000002-00000002.parquet").write_bytes(b"PAR1 no footer PAR")
    for action in (Episodes(path).columns, lambda: Episodes(path).rewind(3)):
        with pytest.raises(
            UserError, match=r"00000002-00000002\.parquet is damaged .* or delete .*episodes\.parquet and"
        ):
            action()
    (path / "00000002-00000002.parquet").unlink()
    assert Episodes(path).columns()["epoch"].tolist() == [1, 3, 3, 3]


# ---- rewinding -------------------------------------------------------------------------------------------------------


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge four parts instead of sixteen, so that a short run has parts of several sizes."""
    monkeypatch.setattr(tables, "FANOUT", 4)
    monkeypatch.setattr(tables, "LARGEST", 4**4)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("epoch", range(31))
def test_a_rewound_table_goes_on_to_the_same_rows(path: Path, epoch: int, reopened: bool) -> None:
    table = Episodes(path)
    write(table, 1, 27)
    table.add(29, episodes(29))
    table.add(30, episodes(30))
    assert len({part.rows for part in table._parts}) > 2
    if reopened:
        table = Episodes(path)
    table.rewind(epoch)
    assert same(table.columns(), up_to(min(epoch, 27) if reopened else epoch))
    write(table, epoch + 1 if epoch < 27 or not reopened else 28, 40)
    assert holds(table, 40)
    assert not [name for name in names(path) if name.startswith(".")]


# ---- files of the first version --------------------------------------------------------------------------------------


def test_an_old_file_is_read_as_it_is(path: Path) -> None:
    write_old_file(path, 10)
    before = path.read_bytes()
    assert holds(Episodes(path), 10)
    assert path.read_bytes() == before


def test_an_old_file_becomes_the_first_part(path: Path) -> None:
    write_old_file(path, 10)
    content = path.read_bytes()
    path.with_name(".tmp-episodes.parquet").write_bytes(b"what the first version was writing when it was killed")
    table = Episodes(path)
    write(table, 11, 11)
    assert names(path) == ["00000001-00000010.parquet", "00000011-00000011.parquet"]
    assert (path / "00000001-00000010.parquet").read_bytes() == content
    assert names(path.parent) == ["episodes.parquet"]
    assert holds(table, 11)


@pytest.mark.parametrize("epoch", [0, 4, 10])
def test_an_old_file_can_be_rewound(path: Path, epoch: int) -> None:
    write_old_file(path, 10)
    table = Episodes(path)
    table.rewind(epoch)
    assert holds(table, epoch)
    write(table, epoch + 1, 12)
    assert holds(Episodes(path), 12)


def test_between_its_two_renames_an_old_file_is_read_where_it_lies(path: Path) -> None:
    between = path.with_name(".parts-episodes.parquet")
    between.mkdir()
    write_old_file(between / "00000001-00000010.parquet", 10)
    assert same(Episodes(path).columns(), up_to(10))
    assert between.exists()  # a reader leaves a writer's files alone
    table = Episodes(path)
    table.rewind(10)
    assert not between.exists()
    assert holds(table, 10)


# ---- kills -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


class Killer:
    """Lets some file operations happen, and kills the next one; of a file that is being written half is left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        for name in ("replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(Path, name, self.watch(getattr(Path, name)))
        write_synced = files.write_synced
        monkeypatch.setattr(
            files,
            "write_synced",
            self.watch(write_synced, lambda path, content: write_synced(path, content[: len(content) // 2])),
        )

    def watch(self, real: Callable[..., Any], instead: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if self.left == 0:
                if instead is not None:
                    instead(*arguments, **options)
                raise Killed
            self.left -= 1
            return real(*arguments, **options)

        return operation


STORY = [*range(6, 24), ("rewind", 13), *range(14, 20), ("rewind", 17), 18, ("rewind", 0), 1, 2, 3]
"""Epochs that are flushed one by one, and rewinds; five epochs are there before."""


def begin(path: Path, old: bool) -> None:
    if old:
        write_old_file(path, 5)
    else:
        write(Episodes(path), 1, 5)


def tell(table: Episodes, story: list[Any]) -> Iterator[None]:
    for step in story:
        if isinstance(step, tuple):
            table.rewind(step[1])
        else:
            write(table, step, step)
        yield


def end_of(step: Any) -> int:
    return int(step[1]) if isinstance(step, tuple) else int(step)


def kill_and_check(path: Path, old: bool, allowed: int) -> bool:
    """Kill a writer after so many file operations and go on after it; returns whether the story ended before that."""
    begin(path, old)
    completed = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        Killer(monkeypatch, allowed)
        try:
            for _ in tell(Episodes(path), STORY):
                completed += 1
        except Killed:
            pass
    if completed == len(STORY):
        return True
    before, after = end_of(STORY[completed - 1]) if completed else 5, end_of(STORY[completed])
    # A flush happens as a whole or not at all; a rewind drops the latest rows first.
    possible = range(after, before + 1) if isinstance(STORY[completed], tuple) else (before, after)
    left = [entry for entry in path.parent.rglob("*") if entry.is_file()]
    assert any(same(Episodes(path).columns(), up_to(epoch)) for epoch in possible)
    assert [entry for entry in path.parent.rglob("*") if entry.is_file()] == left  # a reader removes nothing

    table = Episodes(path)
    table.rewind(min(before, after))
    assert holds(table, min(before, after))
    assert names(path.parent) == (["episodes.parquet"] if up_to(min(before, after)) else [])
    rest = STORY[completed + isinstance(STORY[completed], tuple) :][:5]
    for _ in tell(table, rest):
        pass
    assert holds(Episodes(path), end_of(rest[-1]))
    assert not [name for name in names(path.parent) if name.startswith(".")]
    return False


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("old", [False, True], ids=["folder", "old file"])
def test_a_kill_at_any_file_operation_loses_and_doubles_no_row(path: Path, old: bool) -> None:
    for allowed in range(1000):
        place = path.parent / str(allowed) / path.name
        place.parent.mkdir()
        if kill_and_check(place, old, allowed):
            break
    assert 60 < allowed < 999


def test_of_a_part_and_those_it_covers_only_the_longer_one_counts(path: Path, tmp_path: Path) -> None:
    table = Episodes(path)
    for epoch in range(1, 6):
        table.add(epoch, episodes(epoch))
    table.flush()
    write(Episodes(tmp_path / "other"), 1, 3)
    for part in (tmp_path / "other").iterdir():
        part.rename(path / part.name)
    left = names(path)
    assert len(left) == 4
    assert same(Episodes(path).columns(), up_to(5))
    assert names(path) == left
    write(Episodes(path), 6, 6)
    assert names(path) == ["00000001-00000005.parquet", "00000006-00000006.parquet"]
    assert holds(Episodes(path), 6)


def test_a_reader_beside_a_writer_that_merges_gets_every_row_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = Episodes(path), Episodes(path)
    write(writer, 1, 19)
    parts = len(names(path))
    real, merged = tables._read, False

    def read(*arguments: Any) -> Any:
        nonlocal merged
        if not merged:
            merged = True
            write(writer, 20, 22)
        return real(*arguments)

    monkeypatch.setattr(tables, "_read", read)
    assert same(reader.columns(), up_to(22))
    assert len(names(path)) < parts


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")
def test_a_part_that_is_listed_but_not_there_is_an_error(path: Path) -> None:
    write(Episodes(path), 1, 2)
    (path / "00000003-00000003.parquet").symlink_to(path / "nowhere")
    with pytest.raises(FileNotFoundError):
        Episodes(path).columns()
