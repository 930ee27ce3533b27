"""A disk that is full, and folders that cannot be written: one sentence with the path, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.cli import app as cli
from sbtrpo.files import write_atomically
from sbtrpo.runs.claims import CLAIMS
from sbtrpo.runs.evaluations import kept
from sbtrpo.runs.folder import RunFolder

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=300, threads=1)
FLAGS = ["--num-envs", "2", "--steps-per-epoch", "100", "--total-steps", "300", "--threads", "1", "--quiet"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(TOY, tmp_path_factory.mktemp("whole"), quiet=True)


def fill(patch: pytest.MonkeyPatch, ending: str, rows: int = 0) -> None:
    """Let the disk be full for files with this end of their path, once metrics.csv beside them has so many rows."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        metrics = next((folder / "metrics.csv" for folder in path.parents if (folder / "metrics.csv").exists()), None)
        done = 0 if metrics is None else metrics.read_text().count("\n") - 1
        if str(path).endswith(ending) and done >= rows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    patch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize(
    "file", ["metrics.csv", "timing.csv", ".parquet", "state.safetensors", "state.json", "summary.json"]
)
def test_a_full_disk_is_told_with_the_path_and_the_run_goes_on_later(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as full:
        fill(full, file, rows=2)
        assert cli.main(["train", "ToyCorridor-v0", *FLAGS, "--out", str(run)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"sbtrpo: no space is left to write {run}/")
        assert f"{file}; make room and give the command again, or go on with `sbtrpo resume`" in error
        assert error.count("\n") == 1
        assert cli.main(["resume", str(run), "--quiet"]) == 2
        assert "no space is left to write" in capsys.readouterr().err
    assert not list(run.glob(CLAIMS))
    assert cli.main(["resume", str(run), "--quiet"]) == 0
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    ours, theirs = RunFolder.open(run).episodes(), RunFolder.open(whole).episodes()
    assert {name: values.tolist() for name, values in ours.items()} == {k: v.tolist() for k, v in theirs.items()}
    assert not list(run.rglob(".tmp-*"))


def test_a_full_disk_is_told_by_those_who_read_runs(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(monkeypatch, "")
    for command, file in (
        (["collect", str(whole), "--quiet", "--out", str(tmp_path / "results.parquet")], "results.parquet"),
        (["report", str(whole), "--out", str(tmp_path / "report")], "report/"),
        (["export", str(whole), "--format", "torchscript", "--out", str(tmp_path / "policy.pt")], "policy.pt"),
    ):
        assert cli.main(command) == 2, command
        error = capsys.readouterr().err
        assert error.startswith(f"sbtrpo: no space is left to write {tmp_path}/")
        assert file in error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_evaluation_that_cannot_be_kept_is_shown(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(monkeypatch, "")
    assert cli.main(["evaluate", str(whole), "--episodes", "4"]) == 0
    shown = capsys.readouterr()
    assert "safety probability" in shown.out
    target, reason = whole / "evaluations", "No space left on device"
    assert shown.err == f"sbtrpo: {target} is not written ({reason}); name a file with --out\n"
    monkeypatch.undo()
    out = tmp_path / "new" / "result.json"
    assert cli.main(["evaluate", str(whole), "--episodes", "4", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["episodes"] == 4
    assert not kept(whole)


def test_a_place_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    for command in (
        ["evaluate", str(whole), "--out"],
        ["export", str(whole), "--out"],
        ["trajectories", str(whole), "--out"],
        ["record", str(whole), "--out"],
        ["collect", str(whole), "--out"],
    ):
        ending = {"trajectories": "png", "record": "mp4", "collect": "parquet"}.get(command[0], "x")
        assert cli.main([*command, str(tmp_path / "deeper" / f"file.{ending}")]) == 2
        shown = capsys.readouterr()
        assert shown.err == f"sbtrpo: {tmp_path} is read-only; name another place for file.{ending} with --out\n"
        assert not shown.out.strip()


def test_a_run_that_is_not_there_is_not_made_by_a_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("evaluate", "export", "trajectories", "record", "collect", "resume"):
        assert cli.main([command, str(tmp_path / "no run")]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_several_processes_may_write_one_file(tmp_path: Path) -> None:
    texts = [bytes([65 + k]) * 100_000 for k in range(4)]
    path, read = tmp_path / "results.json", set()

    def write(content: bytes) -> None:
        for _ in range(10):
            write_atomically(path, content, alone=False)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            read.add(path.read_bytes())
    assert read <= set(texts)
    assert list(tmp_path.iterdir()) == [path]
