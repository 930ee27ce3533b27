"""From the tidy table to runs, variants and estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow
import pytest

from sbtrpo.report.runs import Variant, read_runs
from sbtrpo.report.tables import hyperparameters
from tests.report import samples

GOAL, CIRCLE = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0"


def constant(
    task: str = GOAL, algo: str = "cpo", seed: int = 0, values: tuple[float, ...] = (1.0,), **more: object
) -> dict:
    """A run whose reward is known."""
    count = len(values)
    columns = {"task": task, "algo": algo, "seed": seed, **more}
    return {
        **{name: [value] * count for name, value in columns.items()},
        "epoch": list(range(1, count + 1)),
        "steps": [100.0 * k for k in range(1, count + 1)],
        "reward": list(values),
    }


def test_methods_come_in_the_papers_order_and_variants_have_names() -> None:
    runs = read_runs(
        samples.table(
            [
                samples.run(GOAL, "crpo"),
                samples.run(GOAL, "cpo", cost_limit=15.0),
                samples.run(GOAL, "cpo"),
                samples.run(CIRCLE, "sb-trpo", beta=0.9),
                samples.run(GOAL, "sb-trpo", beta=0.75),
            ]
        )
    )
    assert [v.title for v in runs.variants] == ["SB-TRPO", "SB-TRPO, β = 0.9", "CPO", "CPO, limit 15", "CRPO"]
    assert runs.tasks == [GOAL, CIRCLE]
    assert [variant.plain for variant in runs.variants] == [True, False, True, False, True]


def test_sb_trpos_critics_are_one_method_however_they_were_asked_for() -> None:
    runs = read_runs(
        samples.table([samples.run(GOAL, "sb-trpo", advantage="gae"), samples.run(CIRCLE, "sb-trpo_critic")])
    )
    assert runs.variants == [Variant("sb-trpo_critic")]
    linear = read_runs(samples.table([samples.run(GOAL, "sb-trpo", advantage="mc-linear")]))
    assert linear.variants[0].title == "SB-TRPO, mc-linear advantage"


def test_a_cost_limit_means_nothing_to_a_method_that_reads_no_cost() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "sb-trpo", cost_limit=15.0)]))
    assert runs.variants == [Variant("sb-trpo")]


def test_settings_that_all_runs_of_a_method_share_are_noted_and_make_no_variant() -> None:
    table = samples.table(
        [samples.run(GOAL, "cpo", k, target_kl=0.02) for k in (0, 1)] + [samples.run(GOAL, "sb-trpo", target_kl=0.01)]
    )
    runs = read_runs(table)
    assert all(variant.plain for variant in runs.variants)
    assert runs.notes == ["not the default: target_kl = 0.02 (CPO)"]
    assert runs.shared[GOAL, "cpo"] == {"target_kl": 0.02}
    mixed = read_runs(
        samples.table([samples.run(GOAL, "cpo", 0, target_kl=0.02), samples.run(GOAL, "cpo", 0, target_kl=0.01)])
    )
    assert [variant.title for variant in mixed.variants] == ["CPO", "CPO, target_kl = 0.02"]


@pytest.mark.parametrize("beside", [[], [samples.run(GOAL, "sb-trpo"), samples.run(CIRCLE, "trpo")]])
def test_rates_of_episodes_that_a_violation_ends_are_told_apart(beside: list[dict[str, Any]]) -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "sb-trpo", end_at_violation=True), *beside]))
    (warning,) = runs.warnings()
    assert warning.startswith(f"SB-TRPO, episodes end at violations on {GOAL}: training episodes end with their first")
    (variant,) = [variant for variant in runs.variants if variant.get("end_at_violation")]
    assert not variant.plain  # alone as beside others


def test_more_worlds_that_play_as_long_are_named_by_their_number() -> None:
    sizes = ({"num_envs": worlds, "steps_per_epoch": steps} for worlds, steps in ((400, 400_000), (1, 1000), (40, 400)))
    several = read_runs(samples.table([samples.run(GOAL, "sb-trpo", **size) for size in sizes]))
    titles = ["SB-TRPO, 1 world", "SB-TRPO, 40 worlds, steps_per_epoch = 400", "SB-TRPO, 400 worlds"]
    assert [variant.title for variant in several.variants] == titles
    one = read_runs(samples.table([samples.run(GOAL, "sb-trpo", num_envs=1600, steps_per_epoch=1_600_000)]))
    assert one.notes == ["not the default: 1,600 worlds (SB-TRPO)"]


def test_settings_that_differ_by_task_alone_are_noted_and_make_no_variant() -> None:
    """A plan may give every task its own number of worlds; methods are compared within a task."""
    sizes = {GOAL: 5000, CIRCLE: 1000}
    table = samples.table(
        [samples.run(task, algo, steps_per_epoch=size) for task, size in sizes.items() for algo in ("sb-trpo", "cpo")]
        + [samples.run(CIRCLE, "rcpo", steps_per_epoch=1000, num_envs=4)]
        + [samples.run(CIRCLE, "sb-trpo", beta=0.9, steps_per_epoch=1000)]
    )
    runs = read_runs(table)
    assert [variant.title for variant in runs.variants] == ["SB-TRPO", "SB-TRPO, β = 0.9", "CPO", "RCPO"]
    assert sorted(runs.notes) == [
        "not the default: 4 worlds (RCPO)",
        "not the default: steps_per_epoch = 1000 (all methods on SafetyCarCircle2-v0)",
        "not the default: steps_per_epoch = 5000 (all methods on SafetyPointGoal2-v0)",
    ]
    epoch = next(row for row in hyperparameters(runs).rows if row[0].text == "Timesteps per Epoch")
    assert [cell.text for cell in epoch[1:]] == ["1000 or 5000 (20000)", "1000 or 5000 (20000)", "1000 (20000)"]


def test_how_many_threads_a_run_had_makes_no_variant() -> None:
    both = [samples.run(GOAL, "cpo", learner_threads=threads, threads=threads, epochs=2) for threads in (1, 2)]
    assert [variant.title for variant in read_runs(samples.table(both)).variants] == ["CPO"]


def test_a_benchmark_that_is_corrected_throughout_has_no_variants_for_it() -> None:
    both = [samples.run(GOAL, algo, fidelity="corrected") for algo in ("cpo", "sb-trpo")]
    runs = read_runs(samples.table(both))
    assert all(variant.plain for variant in runs.variants)
    assert runs.notes == ["not the default: corrected (all methods)"]
    mixed = read_runs(samples.table([both[0], samples.run(GOAL, "sb-trpo", fidelity="paper")]))
    assert [variant.title for variant in mixed.variants] == ["SB-TRPO", "CPO, corrected"]


def test_columns_that_are_metrics_are_not_taken_for_settings() -> None:
    runs = read_runs({**constant(values=(1.0, 2.0)), "cg_iterations": [3.0, 5.0], "learning_rate": [0.1, 0.2]})
    assert runs.variants == [Variant("cpo")]
    assert runs.usual[0].column("cg_iterations").tolist() == [3.0, 5.0]


def test_unknown_methods_and_tasks_keep_their_names() -> None:
    runs = read_runs(samples.table([samples.run("Mine-v0", "my algo"), samples.run(GOAL, "cpo")]))
    assert [variant.title for variant in runs.variants] == ["CPO", "my algo"]
    assert runs.tasks == [GOAL, "Mine-v0"]


def test_estimates_by_hand() -> None:
    values = tuple(float(k) for k in range(30))
    table = pyarrow.concat_tables([pyarrow.table(constant(seed=seed, values=values)) for seed in (0, 1)])
    runs = read_runs(table)
    pooled = runs.pooled(GOAL, Variant("cpo"), "reward")
    assert pooled is not None
    assert pooled.mean == np.mean(range(10, 30))
    assert pooled.std == pytest.approx(np.std(range(10, 30)))
    assert pooled.seeds == 2
    assert runs.pooled(GOAL, Variant("cpo"), "cost") is None
    assert runs.pooled(CIRCLE, Variant("cpo"), "reward") is None


def test_deviations_across_seeds_are_of_the_last_epoch() -> None:
    table = pyarrow.concat_tables([pyarrow.table(constant(seed=seed, values=(9.0, 1.0 + seed))) for seed in (0, 1)])
    found = read_runs(table).across_seeds(GOAL, Variant("cpo"), "reward")
    assert found is not None
    assert (found.mean, found.std) == (1.5, pytest.approx(np.sqrt(0.5)))
    alone = read_runs(constant()).across_seeds(GOAL, Variant("cpo"), "reward")
    assert alone is not None
    assert np.isnan(alone.std)


def test_only_finished_runs_count_as_soon_as_there_is_one() -> None:
    done = constant(seed=0, values=(1.0, 1.0), total_steps=200)
    running = constant(seed=1, values=(7.0,), total_steps=200)
    both = read_runs(pyarrow.concat_tables([pyarrow.table(done), pyarrow.table(running)]))
    assert both.pooled(GOAL, Variant("cpo"), "reward").mean == 1.0  # type: ignore[union-attr]
    assert "runs that are not finished: 1 of 2" in both.notes
    assert read_runs(running).pooled(GOAL, Variant("cpo"), "reward").mean == 7.0  # type: ignore[union-attr]


def test_a_run_is_finished_when_the_table_says_so() -> None:
    # 50,000 steps in epochs of 20,000 end at 40,000.
    assert read_runs(constant(values=(1.0, 1.0), total_steps=250, complete=True)).usual[0].finished
    assert not read_runs(constant(values=(1.0, 1.0), total_steps=200, complete=False)).usual[0].finished


def test_long_runs_stand_apart_and_odd_lengths_are_left_out_aloud() -> None:
    table = samples.table(
        [
            *(samples.run(GOAL, "cpo", seed, 20) for seed in (0, 1, 2)),
            samples.run(GOAL, "cpo", 0, 45),
            samples.run(GOAL, "cpo", 5, 10),
            samples.run(GOAL, "sb-trpo", 0, 10),
        ]
    )
    runs = read_runs(table)
    assert [(run.seed, len(run.columns["epoch"])) for run in runs.long] == [(0, 45)]
    assert sorted(run.seed for run in runs.of(GOAL, Variant("cpo"))) == [0, 1, 2]
    assert len(runs.of(GOAL, Variant("sb-trpo"))) == 1  # it has no others
    assert "runs left out since they are not of the usual 400,000 steps: 1" in runs.notes


def test_of_repeated_runs_the_longest_is_kept() -> None:
    first = constant(values=(1.0, 1.0), total_steps=300, run="a")
    second = constant(values=(2.0, 2.0, 2.0), total_steps=300, run="b")
    runs = read_runs(pyarrow.concat_tables([pyarrow.table(first), pyarrow.table(second)]))
    assert [run.identity for run in runs.usual] == ["b"]
    assert any("repeated" in note for note in runs.notes)


def test_rows_may_come_in_any_order_and_as_a_mapping() -> None:
    table = samples.benchmark([GOAL, CIRCLE], ["cpo", "sb-trpo"], seeds=2, epochs=5, studies=False)
    shuffled = table.take(np.random.default_rng(0).permutation(table.num_rows))
    columns = {name: shuffled[name].to_numpy() for name in shuffled.column_names}
    for other in (shuffled, columns):
        for run, same in zip(read_runs(table).usual, read_runs(other).usual, strict=True):
            assert (run.identity, run.seed, run.variant) == (same.identity, same.seed, same.variant)
            np.testing.assert_array_equal(run.column("cost"), same.column("cost"))


def test_without_an_identity_settings_and_seed_tell_runs_apart() -> None:
    table = samples.benchmark([GOAL], ["cpo", "sb-trpo"], seeds=3, epochs=4, studies=False).drop_columns(["run"])
    assert len(read_runs(table).usual) == 6


def test_a_table_without_its_columns_is_refused_with_advice_and_an_empty_one_is_fine() -> None:
    with pytest.raises(ValueError, match="no column epoch"):
        read_runs({"task": ["a"], "algo": ["cpo"]})
    assert read_runs({}).notes == ["there are no runs"]
    assert read_runs(samples.table([samples.run(GOAL, "cpo")]).slice(0, 0)).usual == []


@pytest.mark.parametrize("epoch", [20_000, 150_000, 900_000])
def test_a_curve_ends_where_the_tables_have_it(epoch: int) -> None:
    values = np.random.default_rng(1).normal(size=50)
    table = pyarrow.table(constant(seed=0, values=values) | {"steps": np.arange(1.0, 51) * epoch})
    runs = read_runs(table)
    curve = runs.curve(GOAL, Variant("cpo"), "reward")
    assert curve is not None
    assert curve.mean[-1] == pytest.approx(runs.final_values(GOAL, Variant("cpo"), "reward")[0])
    assert curve.mean[-1] == pytest.approx(values[-min(20, -(-400_000 // epoch)) :].mean())


def test_curves_average_over_the_seeds_that_got_so_far() -> None:
    long, short = constant(seed=0, values=(1.0, 1.0, 1.0)), constant(seed=1, values=(3.0, 3.0))
    runs = read_runs(
        pyarrow.concat_tables(
            [pyarrow.table(long | {"total_steps": [300] * 3}), pyarrow.table(short | {"total_steps": [300] * 2})]
        )
    )
    found = runs.curve(GOAL, Variant("cpo"), "reward", window=1)
    assert found is not None
    assert found.mean.tolist() == [2.0, 2.0, 1.0]
    assert found.std.tolist() == [1.0, 1.0, 0.0]
    assert found.thinned(2).steps.tolist() == [100.0, 300.0]
