"""The wheel and the sdist: that they can be published, and that the package works from them alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sbtrpo.benchmark.plan import PLANS
from sbtrpo.report.results import RESULTS
from tests import pythons

ROOT = Path(__file__).parents[1]
NEEDED = ("sbtrpo", "benchmarks", "docs", "examples", "tests", "MANIFEST.in", "Makefile", "pyproject.toml",
          "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt")  # fmt: skip


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes, of a copy, so that nothing is left in the working tree."""
    copy = tmp_path_factory.mktemp("dist") / "tree"
    for source in (ROOT / name for name in NEEDED):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        else:
            shutil.copy(source, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--quiet"]
    subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return copy / "dist"


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the Python path with what the wheel holds."""
    (wheel,) = dist.glob("*.whl")
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(installed: Path, place: Path, *arguments: str) -> str:
    """The output of a command, given outside of the repository."""
    command = [sys.executable, "-m", "sbtrpo", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "200"}
    child = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_wheel_and_sdist_would_be_accepted(dist: Path) -> None:
    files = sorted(str(path) for path in dist.iterdir())
    assert len(files) == 2
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout + child.stderr


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path for path in (root / "sbtrpo").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(root).as_posix() for path in found}

    assert files(installed) == files(ROOT)
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"sbtrpo"}


def test_the_sdist_holds_what_make_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("Makefile", "constraints.txt", "docs/index.md", "examples/courier.toml", "tests/conftest.py"):
        assert name in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_papers_plans_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert "480 runs in runs" in run(installed, tmp_path, "benchmark", "main", "--dry-run")
    for plan in PLANS.glob("*.toml"):
        assert (installed / "sbtrpo" / "benchmark" / "plans" / plan.name).exists()


def test_the_kept_results_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed, tmp_path, "results", "--json"))
    assert {result["table"] for result in found} == {path.stem for path in RESULTS.glob("*.parquet")}


def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(installed, tmp_path, "demo", "--task", "ToyCorridor-v0", "--epochs", "1")
    assert "in 100 fresh episodes each: safety probability" in said
    assert (tmp_path / "demo" / "curves.png").exists()


# ---- make test-pythons -----------------------------------------------------------------------------------------------


def test_interpreters_are_found_by_their_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    here = "{}.{}".format(*sys.version_info)
    assert pythons.find(here) is None
    (tmp_path / "python3").symlink_to(sys.executable)
    assert pythons.find(here) is not None
    assert pythons.find("3.99") is None
    assert pythons.versions()[:2] == ["3.11", "3.12"]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["all tests pass", "not installed"], 0),
        (["all tests pass", "tests fail"], 1),
        (["not installed", "not installed"], 1),
    ],
)
def test_missing_interpreters_are_told_and_failing_ones_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcomes: list[str], status: int
) -> None:
    monkeypatch.setattr(pythons, "versions", lambda: ["3.11", "3.14"])
    monkeypatch.setattr(pythons, "outcome", lambda version, arguments: outcomes[version == "3.14"])
    assert pythons.main([]) == status
    assert capsys.readouterr().out.endswith(f"Python 3.11: {outcomes[0]}\nPython 3.14: {outcomes[1]}\n")
