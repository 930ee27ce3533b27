"""The paper's numbers as they are packaged."""

from __future__ import annotations

import pytest

from sbtrpo.config import catalogue
from sbtrpo.report import paper


def test_the_main_table_is_whole() -> None:
    cells = [cell for tasks in paper.main().values() for metrics in tasks.values() for cell in metrics.values()]
    assert len(cells) == 12 * 8 * 4
    assert list(paper.tasks().values())[:3] == ["Point Push", "Point Button", "Point Goal"]
    assert set(paper.main()) <= set(catalogue.BUILT_IN)


def test_numbers_are_those_of_the_printed_table() -> None:
    ours = paper.main()["sb-trpo"]["SafetyHopperVelocity-v1"]["cost"]
    assert (ours.mean, ours.std, ours.colour, ours.bold) == (0.00028, 0.00208, "grey", False)
    button = paper.main()["p3o"]["SafetyPointButton2-v0"]["safe_reward"]
    assert (button.mean_text, button.bold, button.colour) == ("-0.06", True, "red")


def test_other_tables_are_whole() -> None:
    rows = paper.cost_limit_15()
    assert [(row.algo, row.cost_limit) for row in rows[:3]] == [
        ("sb-trpo", None),
        ("trpo_lag", 0.0),
        ("trpo_lag", 15.0),
    ]
    assert len(rows) == 11
    assert [(row.advantage, row.beta) for row in paper.advantage()] == [("mc", 0.75), ("gae", 0.75), ("gae", 0.8)]
    assert paper.update_seconds()["sb-trpo_critic"].mean == 8.12
    assert len(paper.update_seconds()) == 13
    assert paper.hyperparameters()["CUP, FOCOPS ν"] == {"cup": "2.00", "focops": "2.00"}
    assert len(paper.hyperparameters()) == 32


def test_unreliable_cells_are_known_with_their_reasons() -> None:
    unreliable = {
        (algo, task, metric)
        for algo, tasks in paper.main().items()
        for task, cells in tasks.items()
        for metric in cells
        if paper.unreliable(algo, task, metric)
    }
    assert {(algo, paper.tasks()[task]) for algo, task, _ in unreliable} == {
        ("p3o", "Hopper Velocity"),
        ("pcpo", "Swimmer Velocity"),
        ("c_trpo", "Hopper Velocity"),
        ("cppo_pid", "Hopper Velocity"),
        ("cppo_pid", "Swimmer Velocity"),
    }
    assert len(unreliable) == 12
    assert ("p3o", "SafetyHopperVelocity-v1", "reward") not in unreliable


def test_unreliable_deviations_are_indeed_impossible() -> None:
    # A share whose mean is 0 has no deviation, and no share can deviate by more than a half.
    for algo, tasks in paper.main().items():
        for task, cells in tasks.items():
            share = cells["safety_probability"]
            if share.std**2 > share.mean * (1 - share.mean) + 0.06:  # the rest is rounding
                assert paper.unreliable(algo, task, "safety_probability"), (algo, task)


def test_safe_rewards_are_products() -> None:
    """What `paper.PRODUCT` says; by the definition both would differ in most cells."""
    cells = [cell for row in paper.main().values() for cell in row.values()]
    pairs = [(c["safe_reward"].mean, c["reward"].mean * c["safety_probability"].mean) for c in cells]
    assert len(pairs) == 96
    assert sum(abs(a - b) <= 0.05 * max(abs(a), abs(b)) for a, b in pairs) == 74
    ratios = sorted(a / b for a, b in pairs if b)
    assert ratios[len(ratios) // 2] == pytest.approx(1, abs=0.005)
