"""Imports point one way, methods share code instead of copies, and many worlds take little memory."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "sbtrpo"

ROOMS = [  # each may import what stands before it, and itself
    {"errors", "files", "version"},
    {"config"},
    {"envs", "nets"},
    {"algorithms"},
    {"runs"},
    {"learning"},
    {"media"},
    {"benchmark"},
    {"report"},
    {"tools"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}


def imports(source: str, package: tuple[str, ...]) -> set[str]:
    """Rooms that a file imports which lies in `package`, such as ("sbtrpo", "envs").

    What is neither a room nor in one comes from the package itself, whose `__init__` imports nearly everything.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = [*start, *(node.module or "").split(".")] if node.module else [*start]
            found += [[*module, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [[*alias.name.split("."), ""] for alias in node.names]
    return {name[1] if name[1] in RANK else "__init__" for name in found if name[0] == "sbtrpo"}


@pytest.mark.parametrize(
    ("statement", "rooms"),
    [
        ("import numpy, torch.nn", set()),
        ("import sbtrpo.envs.spec as spec", {"envs"}),
        ("import sbtrpo", {"__init__"}),
        ("from sbtrpo import cli, learning", {"cli", "learning"}),
        ("from sbtrpo import TrainConfig", {"__init__"}),
        ("from sbtrpo.algorithms.base import Batch", {"algorithms"}),
        ("from . import spec", {"envs"}),
        ("from .spec import TaskSpec", {"envs"}),
        ("from .. import nets", {"nets"}),
        ("from ..algorithms.base import Batch", {"algorithms"}),
        ("def f():\n    from ..cli import main", {"cli"}),
    ],
)
def test_imports_are_seen_however_they_are_written(statement: str, rooms: set[str]) -> None:
    assert imports(statement, ("sbtrpo", "envs")) == rooms


def test_imports_point_one_way() -> None:
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).parts
        room = place[0].removesuffix(".py")
        assert room in RANK, f"{room}: say in ROOMS what it may import"
        if room.startswith("__"):
            continue
        for other in imports(path.read_text(), ("sbtrpo", *place[:-1])):
            assert other == room or RANK[other] < RANK[room], f"{path.name} of {room} must not import {other}"


def code_lines(path: Path) -> list[str]:
    """What a file says: its lines without indentation, blank lines, comments and imports."""
    text = path.read_text()
    imported = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in imported]
    return [line for line in lines if line and not line.startswith("#")]


def test_no_two_methods_share_six_lines_in_a_row() -> None:
    runs = {}
    for path in sorted((PACKAGE / "algorithms").glob("*.py")):
        lines = code_lines(path)
        runs[path.name] = {tuple(lines[i : i + 6]) for i in range(len(lines) - 5)}
    assert len(runs) > 15
    for (one, ours), (other, theirs) in itertools.combinations(runs.items(), 2):
        assert not ours & theirs, f"{one} and {other} repeat each other: {ours & theirs}"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_a_thousand_worlds_take_less_than_two_gibibytes() -> None:
    code = (
        "import pathlib, numpy as np, sbtrpo\n"
        "pool = sbtrpo.make_pool('SafetyPointGoal2-v0', 1000)\n"
        "pool.reset()\n"
        "for _ in range(3): pool.step(np.ones((1000, 2)))\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(next(line.split()[1] for line in status.splitlines() if line.startswith('VmHWM')))\n"
    )
    # Not getrusage: on Linux a child inherits its parent's peak.
    peak = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert 50 * 1024 < peak < 2 * 2**20  # KiB
