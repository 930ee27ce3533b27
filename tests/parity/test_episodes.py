"""Episode parity: under two random policies, whole episodes of ours are distributed as recorded ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbtrpo.envs.registry import PAPER_TASKS
from tests.parity.playing import BASIC, KINDS, compare, play, recorded, worst

WORLDS = 200  # half of them under each policy


@pytest.mark.slow
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_episodes_are_distributed_as_the_originals(task: str, report: Callable[[str], None]) -> None:
    ours, faults = play(task, WORLDS)
    theirs = recorded(task)
    assert faults == 0
    for kind in KINDS:
        assert len(theirs[kind]["return"]) == 20
        found = [comparison for comparison in compare(ours, theirs) if comparison.kind == kind]
        least, chance = worst(found)
        means = ", ".join(f"{x.name} {x.ours:.3g} / {x.theirs:.3g}" for x in found if x.name in BASIC)
        report(f"{task} {kind}: {means} (ours / recorded); least of {len(found)} p values {least.p:.3f} ({least.name})")
        assert chance > 0.01
