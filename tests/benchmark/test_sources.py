"""Runs of several places become one table, and each counts once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sbtrpo.benchmark.collect import final, read_table, write_table
from sbtrpo.benchmark.command import collect_runs
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.sources import read_sources
from sbtrpo.cli.app import main
from sbtrpo.config import TrainConfig
from tests.benchmark.folders import toy, write_run

ROWS = [[1.0, 2.0, 0.5, 0.25], [3.0, 0.0, 1.0, 3.0]]


def test_a_folder_and_a_table_of_another_are_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("here", 0), ("there", 1)):
        write_run(tmp_path / name, toy(seed=seed), ROWS)
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    assert main(["collect", str(tmp_path / "there"), "--out", str(old)]) == 0
    shutil.rmtree(tmp_path / "there")
    assert main(["collect", str(old), str(tmp_path / "here"), "--out", str(new)]) == 0
    table = read_table(new)
    assert sorted(table["seed"].to_pylist()) == [0, 0, 1, 1]
    assert "new-final.csv" in capsys.readouterr().out.replace("\n", "")
    assert main(["collect", str(old), str(tmp_path / "here")]) == 2
    assert "--out FILE.parquet" in capsys.readouterr().err
    assert main(["collect"]) == 2
    assert "give the folder of the runs" in capsys.readouterr().err


def places(tmp_path: Path, **configs: TrainConfig) -> list[Path]:
    """A folder for each of these runs, all of which are called the same there."""
    for place, config in configs.items():
        write_run(tmp_path / place, config, ROWS).rename(tmp_path / place / "mine")
    return [tmp_path / place for place in configs]


def as_table(folder: Path) -> Path:
    assert main(["collect", str(folder), "--out", str(folder.with_suffix(".parquet")), "--quiet"]) == 0
    return folder.with_suffix(".parquet")


@pytest.mark.parametrize("tables", [(), ("old",), ("new",), ("old", "new")])
def test_of_copies_of_a_run_the_one_that_got_furthest_counts(tables: tuple[str, ...], tmp_path: Path) -> None:
    write_run(tmp_path / "old", toy(), ROWS[:1])
    write_run(tmp_path / "new", toy(), ROWS)
    paths = [as_table(tmp_path / name) if name in tables else tmp_path / name for name in ("new", "old")]
    name = run_path(Path(), toy()).as_posix()
    for order in (paths, paths[::-1]):
        found = read_sources(order)
        assert found.table["reward"].to_pylist() == [1.0, 3.0]
        assert found.notes[-1] == f"runs that are in several places, and count once: {name}"


def test_a_run_that_was_made_longer_is_one(tmp_path: Path) -> None:
    old, new = places(tmp_path, old=toy(), new=toy(total_steps=2 * toy().total_steps))
    for paths in ([old, new], [as_table(old), new]):
        found = read_sources(paths)
        assert found.table.num_rows == 2
        assert set(found.table["total_steps"].to_pylist()) == {2 * toy().total_steps}


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("name", ["seed", "target_kl", "beta"])
def test_different_runs_of_one_name_stay_apart(tables: bool, name: str, tmp_path: Path) -> None:
    values = (1, 2, 3) if name == "seed" else (0.25, 0.5, 0.75)
    folders = places(tmp_path, **{f"p{k}": toy(**{name: value}) for k, value in enumerate(values)})
    found = read_sources([as_table(folder) for folder in folders] if tables else folders)
    runs = dict(zip(found.table["run"].to_pylist(), found.table[name].to_pylist(), strict=True))
    assert sorted(runs.values()) == list(values)
    assert "mine" in runs
    assert found.table.num_rows == 6
    assert not [note for note in found.notes if "several" in note]


def test_a_setting_that_only_one_place_has_changed_is_the_default_elsewhere(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "here", toy(seed=seed), ROWS)
    write_run(tmp_path / "there", toy(seed=2), ROWS)
    write_run(tmp_path / "there", toy(seed=2, target_kl=0.02), ROWS)
    both = [tmp_path / "here", tmp_path / "there"]
    for paths in (both, [as_table(both[0]), both[1]], [both[0], as_table(both[1])], [*map(as_table, both)]):
        rows = final(read_sources(paths).table).to_pylist()
        assert sorted((row["target_kl"], row["incomplete"]) for row in rows) == [(toy().get("target_kl"), 3), (0.02, 1)]


def test_numbers_and_a_number_for_each_constraint_are_joined(tmp_path: Path) -> None:
    one, several = toy(), toy(seed=1, beta=(0.5, 0.75), constraints=("each",))
    write_run(tmp_path / "a", one, ROWS)
    write_run(tmp_path / "b", several, ROWS)
    for paths in ([tmp_path / "a", tmp_path / "b"], [as_table(tmp_path / "a"), tmp_path / "b"]):
        assert set(read_sources(paths).table["beta"].to_pylist()) == {"0.75", "0.5 0.75"}


def test_runs_given_one_by_one_have_the_names_of_their_folders(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, toy(seed=seed), ROWS) for seed in (0, 1)]
    assert set(read_sources(folders).table["run"].to_pylist()) == {folder.name for folder in folders}


def test_tables_whose_runs_have_no_names_are_joined(tmp_path: Path) -> None:
    write_run(tmp_path / "a", toy(), ROWS)
    nameless = read_table(as_table(tmp_path / "a")).drop_columns(["run"])
    write_table(nameless, tmp_path / "b.parquet")
    assert read_sources([tmp_path / "b.parquet", tmp_path / "a.parquet"]).table.num_rows == 4
    with pytest.raises(ValueError, match="is no table that `sbtrpo collect` made: it has no column run"):
        collect_runs([tmp_path / "b.parquet"], tmp_path / "t.parquet")


@pytest.mark.parametrize("order", [1, -1])
def test_a_copy_that_cannot_be_read_is_named_and_the_other_counts(order: int, tmp_path: Path) -> None:
    good, bad = (write_run(tmp_path / place, toy(), ROWS) for place in ("good", "bad"))
    (bad / "config.toml").write_text("beta = ", encoding="utf-8")
    found = read_sources([tmp_path / "good", tmp_path / "bad"][::order])
    assert set(found.table["run"].to_pylist()) == {good.relative_to(tmp_path / "good").as_posix()}
    assert found.table.num_rows == 2
    assert len([note for note in found.notes if "config.toml" in note]) == 1


@pytest.mark.parametrize("name", ["none", "none.parquet"])
def test_a_place_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "a", toy(), ROWS)
    with pytest.raises(FileNotFoundError, match=f"there is no file or folder .*{name}; give"):
        read_sources([tmp_path / "a", tmp_path / name])
