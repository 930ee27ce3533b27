"""Runs the tests under every Python that the package is for, as far as it is installed: `make test-pythons`.

Each has an environment of its own in `.venvs`. Arguments go to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = "Scripts" if os.name == "nt" else "bin"


def versions() -> list[str]:
    """As pyproject.toml lists them."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    return re.findall(r"Python :: (3\.\d+)$", "\n".join(listed), re.MULTILINE)


def find(version: str) -> str | None:
    """The interpreter of this version: on the path, of pyenv, or what Windows' launcher knows; None without one."""
    for command in _candidates(version):
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        child = subprocess.run([*command, "-c", code], capture_output=True, text=True, check=False)  # pyenv's may fail
        found, _, executable = child.stdout.strip().partition(" ")
        if child.returncode == 0 and found == version:
            return executable
    return None


def _candidates(version: str) -> Iterator[list[str]]:
    for name in (f"python{version}", "python3", "python"):
        if program := shutil.which(name):
            yield [program]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for program in sorted(pyenv.glob(f"versions/{version}.*/bin/python")):
        yield [str(program)]
    if launcher := shutil.which("py"):
        yield [launcher, f"-{version}"]


def outcome(version: str, arguments: list[str]) -> str:
    """What became of the tests under a version, in words."""
    interpreter = find(version)
    if interpreter is None:
        return "not installed"
    folder = ROOT / ".venvs" / version
    python = str(folder / BIN / "python")
    steps = {
        "no environment can be made": [interpreter, "-m", "venv", str(folder)],
        "the packages cannot be installed": [
            python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt",
            "-e", ".[dev]",
        ],
        "tests fail": [python, "-m", "pytest", "-q", "-m", "not slow", *arguments],
    }  # fmt: skip
    for failure, command in steps.items():
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return failure
    return "all tests pass"


def main(arguments: list[str]) -> int:
    """Try all versions; the exit status is 1 if one that is installed fails, or none is."""
    outcomes = {}
    for version in versions():
        print(f"==== Python {version} ====", flush=True)
        outcomes[version] = outcome(version, arguments)
        print(outcomes[version], flush=True)
    print("====")
    for version, words in outcomes.items():
        print(f"Python {version}: {words}")
    tried = set(outcomes.values()) - {"not installed"}
    return 0 if tried == {"all tests pass"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
