"""The comparison with the paper, by hand."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from sbtrpo.report import compare, paper
from sbtrpo.report.runs import read_runs
from sbtrpo.report.tables import Missing
from tests.report import samples

GOAL, HOPPER = "SafetyPointGoal2-v0", "SafetyHopperVelocity-v1"


def comparisons_of(task: str, algo: str, **values: float) -> dict[str, compare.Comparison]:
    run = samples.run(task, algo, epochs=2)
    run |= {name: np.full(2, value) for name, value in values.items()}
    return {c.metric: c for c in compare.comparisons(read_runs(samples.table([run]))) if c.table == "main"}


def test_verdicts_by_hand() -> None:
    # The paper: safe reward 1.6 ± 0.5, safety probability 0.68 ± 0.07, reward 2.4 ± 0.6, cost 18 ± 6.
    compared = comparisons_of(GOAL, "sb-trpo", safe_reward=1.2, safety_probability=0.78, reward=0.5, cost=3.0)
    assert {metric: one.verdict for metric, one in compared.items()} == {
        "product": "worse",
        "safety_probability": "near",
        "reward": "worse",
        "cost": "better",
    }
    assert compared["product"].distance == pytest.approx((0.78 * 0.5 - 1.6) / 0.5)
    assert compared["cost"].distance == pytest.approx(-2.5)
    assert compared["reward"].distance == pytest.approx(-1.9 / 0.6)


def test_a_deviation_printed_as_nought_counts_as_half_its_last_digit() -> None:
    assert compare.distance(0.05, paper.PrintedCell("0.0", "0.0")) == pytest.approx(1.0)
    assert compare.distance(12.0, paper.PrintedCell("11", "0")) == pytest.approx(2.0)


def test_unreliable_cells_are_marked_with_a_reason_and_not_counted() -> None:
    compared = comparisons_of(HOPPER, "p3o", safe_reward=900.0, safety_probability=0.9, reward=1700.0, cost=8.9)
    assert compared["safety_probability"].unreliable
    assert compared["reward"].unreliable is None
    sentences = compare.summary(list(compared.values()))
    assert "2 agree within one" in sentences
    assert "2 cells of the paper are unreliable and not counted" in sentences


def test_every_cell_that_both_have_is_compared() -> None:
    runs = [samples.run(task, algo, epochs=1) for task in paper.tasks() for algo in paper.METHODS]
    for row in paper.cost_limit_15():
        if row.cost_limit:
            runs += [samples.run(task, row.algo, epochs=1, cost_limit=row.cost_limit) for task in row.results]
    for variant in paper.advantage()[1:]:
        runs += [
            samples.run(task, "sb-trpo_critic", epochs=1, advantage="gae", beta=variant.beta)
            for task in variant.results
        ]
    compared = compare.comparisons(read_runs(samples.table(runs)))
    count = {name: sum(one.table == name for one in compared) for name in dict.fromkeys(one.table for one in compared)}
    assert count == {"main": 384, "cost limit 15": 5 * 4 * 2, "advantage": 2 * 4 * 2, "update time": 13}
    assert sum(one.unreliable is not None for one in compared) == 12
    table = compare.comparison_table(read_runs(samples.table(runs)))
    assert len(table.rows) == len(compared)
    assert sum(row[7].text == "unreliable" for row in table.rows) == 12
    assert "0.0 ± 1454.5 are impossible" in table.caption


def test_short_runs_are_said_to_be_short() -> None:
    sentences = compare.summary(list(comparisons_of(GOAL, "cpo").values()))
    assert "Our shortest runs have 40,000 steps, the paper's 20,000,000." in sentences


def test_the_summary_counts_by_method() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "cpo", epochs=3), samples.run(HOPPER, "c_trpo", epochs=3)]))
    rows = {row[0].text: [int(cell.text) for cell in row[1:]] for row in compare.summary_table(runs).rows}
    assert rows["CPO"][0] == sum(rows["CPO"][1:]) == 5  # four metrics and the update time
    assert rows["C-TRPO"][-1] == 4


def test_the_comparison_is_also_for_other_programs() -> None:
    compared = compare.comparisons(read_runs(samples.table([samples.run(GOAL, "cpo", epochs=3)])))
    rows = list(csv.DictReader(io.StringIO(compare.as_csv(compared))))
    assert len(rows) == len(compared) == 5
    assert rows[0]["verdict"] in compare.VERDICTS
    assert float(rows[0]["ours_mean"]) == compared[0].ours.mean


def test_without_a_common_cell_there_is_no_comparison() -> None:
    with pytest.raises(Missing, match="no runs"):
        compare.comparison_table(read_runs(samples.table([samples.run("Mine-v0", "cpo")])))
