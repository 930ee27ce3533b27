"""The highlighting rules, and that they give every mark of the published tables."""

from __future__ import annotations

from sbtrpo.report import paper
from sbtrpo.report.marks import Pair, marks

HALVES = (("safe_reward", "safety_probability", False), ("reward", "cost", True))


def disagreements(
    cells: dict[str, dict[str, paper.PrintedCell]], first: str, second: str, lower: bool
) -> tuple[int, list]:
    """Flags compared, and those that the rules give otherwise, in one task and half: cells by row, then metric."""
    pairs = {
        row: Pair(metrics[first].mean, metrics[second].mean, metrics["safety_probability"].mean)
        for row, metrics in cells.items()
    }
    count, wrong = 0, []
    for row, mark in marks(pairs, lower, as_published=True).items():
        for metric, bold in ((first, mark.bold_reward), (second, mark.bold_second)):
            printed = cells[row][metric]
            for name, ours, theirs in (
                ("bold", bold, printed.bold),
                ("italic", mark.italic, printed.italic),
                ("colour", mark.colour, printed.colour),
            ):
                count += 1
                if ours != theirs:
                    wrong.append((row, metric, name, ours, theirs))
    return count, wrong


def test_every_mark_of_the_published_main_table_is_reproduced() -> None:
    total = 0
    for task in paper.tasks():
        for half in HALVES:
            count, wrong = disagreements({algo: cells[task] for algo, cells in paper.main().items()}, *half)
            assert not wrong
            total += count
    assert total == 1152


def test_every_mark_of_the_published_table_with_limit_15_is_reproduced() -> None:
    rows = paper.cost_limit_15()
    total = 0
    for task in rows[0].results:
        cells = {f"{row.algo} {row.cost_limit}": row.results[task] for row in rows}
        count, wrong = disagreements(cells, *HALVES[0])
        assert not wrong
        total += count
    assert total == 264


def test_negative_rewards_are_red_and_dominate_nobody_into_red() -> None:
    pairs = {"bold": Pair(-0.1, 0.6, 0.6), "worse": Pair(-0.2, 0.9, 0.9)}
    marked = marks(pairs, lower_is_better=False, as_published=True)
    assert marked["bold"].colour == marked["worse"].colour == "red"
    assert marked["bold"].bold_reward
    assert not marked["worse"].bold_second  # its reward is not above 0


def test_where_nobody_earns_anything_the_safest_is_best() -> None:
    pairs = {"first": Pair(-39.0, 0.53, 0.53), "safer": Pair(-143.0, 0.88, 0.88), "unsafe": Pair(-1.0, 0.02, 0.02)}
    marked = marks(pairs, lower_is_better=False)
    assert [key for key, mark in marked.items() if mark.bold_reward] == ["safer"]
    assert [key for key, mark in marked.items() if mark.bold_second] == ["safer"]
    alike = {**pairs, "as safe, and better": Pair(-90.0, 0.89, 0.89)}
    marked = marks(alike, lower_is_better=False)
    assert [key for key, mark in marked.items() if mark.bold_reward] == ["as safe, and better"]
    costs = marks({key: Pair(-50.0, 9.0 * (1 - pair.safety), pair.safety) for key, pair in pairs.items()}, True)
    assert [key for key, mark in costs.items() if mark.bold_second] == ["safer"]


def test_one_that_earns_is_better_than_the_safest_that_loses() -> None:
    pairs = {"earns": Pair(0.3, 0.55, 0.55), "loses": Pair(-0.1, 0.95, 0.95), "reckless": Pair(9.0, 0.2, 0.2)}
    marked = marks(pairs, lower_is_better=False)
    assert [key for key, mark in marked.items() if mark.bold_reward] == ["earns"]


def test_equal_pairs_are_both_bold_and_neither_grey() -> None:
    marked = marks({"a": Pair(2.0, 3.0, 0.9), "b": Pair(2.0, 3.0, 0.9)}, lower_is_better=True)
    for one in marked.values():
        assert one.bold_reward
        assert one.bold_second
        assert one.colour is None


def test_unsafe_methods_are_italic_and_their_reward_is_never_bold() -> None:
    marked = marks({"reckless": Pair(9.0, 0.4, 0.4), "careful": Pair(1.0, 0.5, 0.5)}, lower_is_better=False)
    assert marked["reckless"].italic
    assert not marked["reckless"].bold_reward
    assert marked["careful"].bold_reward
    assert not marked["careful"].italic


def test_lower_costs_are_better() -> None:
    marked = marks({"cheap": Pair(1.0, 2.0, 0.9), "dear": Pair(1.0, 3.0, 0.9)}, lower_is_better=True)
    assert marked["cheap"].bold_second
    assert marked["dear"].colour == "grey"
