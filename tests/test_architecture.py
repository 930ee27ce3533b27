"""Imports point one way, and many worlds take little memory."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "sbtrpo"

ROOMS = [  # each may import what stands before it, and itself
    {"catalogue", "seeding", "distributions"},
    {"config"},
    {"envs", "policy"},
    {"rollout", "advantages", "metrics"},
    {"algorithms"},
    {"checkpoint"},
    {"config_file", "curves"},
    {"runlog", "display"},
    {"evaluation"},
    {"training"},
    {"benchmark"},
    {"report", "demo", "algorithm_docs"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}


def imports(path: Path) -> set[str]:
    """Rooms of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sbtrpo":
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names if alias.name in RANK}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sbtrpo.")}
    return found


def test_imports_point_one_way() -> None:
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert room in RANK, f"{room}: say in ROOMS what it may import"
        if room.startswith("__"):
            continue
        for other in imports(path):
            assert other == room or RANK[other] < RANK[room], f"{path.name} of {room} must not import {other}"


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
