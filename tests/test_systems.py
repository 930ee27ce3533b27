"""What macOS and Windows do otherwise than Linux: here as far as one system can play another."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbtrpo import TrainConfig, files
from sbtrpo.benchmark import worker
from sbtrpo.benchmark.local import LocalLauncher
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.states import LOG
from sbtrpo.benchmark.worker import Job
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs.view import graphics
from sbtrpo.files import move, remove, write_atomically
from sbtrpo.runs.folder import default_path, folder_name, method_file

PACKAGE = Path(__file__).parents[1] / "sbtrpo"
TOY = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=1_000_000, threads=1)


# ---- files that others read ----------------------------------------------------------------------------------------


def in_use(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[int]:
    """Let a change of a path fail so often, as on Windows while another program reads the file; counts the tries."""
    real, tries = getattr(Path, name), [0]

    def change(path: Path, *arguments: object, **options: object) -> object:
        tries[0] += 1
        if tries[0] <= times:
            raise PermissionError(13, "the file is used by another process", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, name, change)
    return tries


def test_on_windows_a_file_that_is_being_read_is_replaced_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOWS", True)
    (tmp_path / "run.json").write_bytes(b"old")
    tries = in_use(monkeypatch, "replace", times=2)
    write_atomically(tmp_path / "run.json", b"new")
    assert tries == [3]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.json", b"new")]
    tries = in_use(monkeypatch, "unlink", times=1)
    remove(tmp_path / "run.json")
    assert tries == [2]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("windows", [True, False])
def test_a_file_that_may_not_be_replaced_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    monkeypatch.setattr(files, "WINDOWS", windows)
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0.1)
    (tmp_path / "a").write_bytes(b"old")
    tries = in_use(monkeypatch, "replace", times=10**9)
    with pytest.raises(PermissionError):
        move(tmp_path / "a", tmp_path / "b")
    assert (tries[0] > 1) == windows


def test_folders_are_moved_and_removed_with_what_is_in_them_and_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"")
    move(tmp_path / "a", tmp_path / "c")
    remove(tmp_path / "a")
    assert (tmp_path / "c" / "b" / "file").exists()
    remove(tmp_path / "c")
    assert not list(tmp_path.iterdir())


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["package:Env-v0", "a?b", "a*b", 'a"b', "a<b>|c", "back\\slash", "nul", "com1.x", "."])
def test_folders_have_names_that_windows_allows(name: str) -> None:
    for part in folder_name(name).split("/"):
        assert not set('<>:"|?*\\') & set(part)
        assert part.rstrip(". ")
        assert part.lower().partition(".")[0] not in ("nul", "com1")


def test_runs_of_a_foreign_environment_keep_the_folder_that_they_had() -> None:
    config = TrainConfig(task="my_package:MyEnv-v0", seed=1)
    assert default_path(config).parent.as_posix() == "runs/my_package-MyEnv-v0/sb-trpo"


def test_a_drive_letter_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_foreign(r"C:\tasks\courier.toml")
    monkeypatch.chdir(tmp_path)  # here C: is the name of a folder
    Path("C:").mkdir()
    source = (PACKAGE.parent / "examples" / "own_method.py").read_bytes()
    Path("C:/method.py").write_bytes(source)
    config = TrainConfig(task="ToyCorridor-v0", algo="C:/method.py:WaryTRPO")
    assert method_file(config) == Path("C:/method.py")
    assert config.label == "WaryTRPO"


# ---- text ------------------------------------------------------------------------------------------------------------


def texts_without_encoding(source: str) -> Iterator[int]:
    """Lines that read or write text in whatever encoding a machine prefers, which on Windows is not UTF-8."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        builtin = isinstance(node.func, ast.Name)
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        values = [item.value if isinstance(item, ast.Constant) else item for item in node.args]
        named = {item.arg: item.value.value for item in node.keywords if isinstance(item.value, ast.Constant)}
        mode = named.get("mode", (values[builtin:] or ["r"])[0])  # of path.open(mode), or of open(path, mode)
        opened = name == "open" and isinstance(mode, str) and "b" not in mode and {*mode} <= {*"rwaxt+"}
        if (opened or name in ("read_text", "write_text")) and "utf-8" not in [*values, *named.values()]:
            yield node.lineno


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("path.open()", True),
        ("path.open('w')", True),
        ("path.open(mode='r+')", True),
        ("path.read_text()", True),
        ("open(path)", True),
        ("open(path, 'a')", True),
        ("path.open(encoding='utf-8')", False),
        ("path.open('r', -1, 'utf-8')", False),
        ("path.open('rb')", False),
        ("path.open(mode='wb')", False),
        ("open(path, 'rb')", False),
        ("open(path, encoding='utf-8')", False),
        ("RunFolder.open(path)", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("path.write_text(text, 'utf-8')", False),
    ],
)
def test_text_without_an_encoding_is_seen(call: str, found: bool) -> None:
    assert list(texts_without_encoding(call)) == [1] * found


def test_text_files_are_utf8_everywhere() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert [f"{path.name}:{line}" for line in texts_without_encoding(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_pipe_that_does_not_know_a_character_gets_another_one(encoding: str) -> None:
    command = [sys.executable, "-m", "sbtrpo", "algorithms", "sb-trpo"]
    child = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False)
    assert child.returncode == 0, child.stderr
    assert b"target_kl" in child.stdout
    assert b"?" in child.stdout


def test_workers_write_their_log_in_utf8() -> None:
    command = [sys.executable, "-c", "print('β', end='')"]
    child = subprocess.run(command, env={**worker.environment(), "LC_ALL": "C"}, capture_output=True, check=True)
    assert child.stdout == "β".encode()


# ---- stopping ------------------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_workers_are_stopped_without_any_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    launcher = LocalLauncher(1)
    launcher.start(Job(tmp_path, (TOY,)))
    wait_until(lambda: any(tmp_path.rglob("epoch-*/state.json")))
    with monkeypatch.context() as windows:
        windows.delattr(signal, "SIGKILL")
        windows.setattr(subprocess.Popen, "send_signal", lambda *_: pytest.fail("Windows has no such signal"))
        if how == "kill":  # for which subprocess has another call on Windows
            windows.setattr(subprocess.Popen, "kill", lambda process: os.kill(process.pid, 9))
        getattr(launcher, how)()
    (ended,) = launcher.wait(120)
    log = (run_path(tmp_path, TOY) / LOG).read_text()
    assert (ended.status == 0) == (how == "stop"), log
    assert ("stopped after epoch" in log) == (how == "stop")


@pytest.mark.parametrize("windows", [True, False])
def test_a_worker_whose_parent_is_gone_hears_of_it_as_of_ctrl_c(monkeypatch: pytest.MonkeyPatch, windows: bool) -> None:
    if windows:
        monkeypatch.setattr(worker, "WINDOWS", True)
        monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("this would end the process at once"))
    told = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: told.set())
    reader, writer = os.pipe()
    standard = os.dup(0)
    try:
        os.dup2(reader, 0)
        worker._stop_with_parent()
        os.close(writer)
        wait_until(told.is_set)
    finally:
        os.dup2(standard, 0)
        os.close(reader)
        os.close(standard)
        signal.signal(signal.SIGINT, before)
    assert told.is_set()


# ---- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("platform", "library"), [("darwin", "cgl"), ("win32", "glfw")])
def test_every_system_draws_with_its_own_library_and_gets_advice_that_fits(
    monkeypatch: pytest.MonkeyPatch, platform: str, library: str
) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(graphics.sys, "platform", platform)
    assert graphics.graphics_library() == library
    assert "apt-get" not in graphics.advice("nothing to draw with")
